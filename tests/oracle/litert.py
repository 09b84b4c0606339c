"""Runs a .tflite file in LiteRT, one example after the other, every array by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tests.oracle.flatbuffer import read


class NoMatch(Exception):
    """An input or output of the file that no name leads to."""


def plain(name: str) -> str:
    """Return the name that a Keras layer had: `serving_default_a:0` is `a`."""
    return name.removeprefix("serving_default_").split(":")[0]


def run(path: Path, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the dequantized outputs, (n, ...) each, in the order of the file's signature names.

    Args:
        path: the file.
        inputs: arrays by the name of the Keras input, (n, ...).
    """
    interpreter = Interpreter(model_path=str(path))
    details = interpreter.get_input_details()
    for detail in details:
        if -1 in list(detail["shape_signature"]):
            interpreter.resize_tensor_input(detail["index"], detail["shape"])
    interpreter.allocate_tensors()
    file = read(path)
    arrays = {
        d["index"]: _quantized(inputs[_key(d, file.signature_inputs, inputs)], d) for d in details
    }
    ends = sorted(
        interpreter.get_output_details(),
        key=lambda d: file.signature_outputs.get(d["index"], d["name"]),
    )
    found: list[list[np.ndarray]] = [[] for _ in ends]
    for example in range(len(next(iter(inputs.values())))):
        for index, array in arrays.items():
            interpreter.set_tensor(index, array[example : example + 1])
        interpreter.invoke()
        for rows, end in zip(found, ends, strict=True):
            rows.append(_dequantized(interpreter.get_tensor(end["index"]), end))
        interpreter.reset_all_variables()
    return [np.concatenate(rows) for rows in found]


def _key(detail: Any, signature: Mapping[int, str], inputs: Mapping[str, np.ndarray]) -> str:
    if len(inputs) == 1:
        return next(iter(inputs))
    for name in (signature.get(detail["index"], ""), plain(detail["name"])):
        if name in inputs:
            return name
    raise NoMatch(f"no input is named {detail['name']}; there are {', '.join(inputs)}")


def _quantized(array: np.ndarray, detail: Any) -> np.ndarray:
    shape = (len(array), *detail["shape"][1:])
    kind = np.dtype(detail["dtype"])
    values = array.reshape(shape)
    scale, zero_point = detail["quantization"]
    if kind.kind in "iu" and scale:
        edges = np.iinfo(kind)
        steps = np.round(values.astype(np.float32) / np.float32(scale)) + zero_point
        values = np.clip(steps, edges.min, edges.max)
    return np.ascontiguousarray(values.astype(kind))


def _dequantized(values: np.ndarray, detail: Any) -> np.ndarray:
    scale, zero_point = detail["quantization"]
    if values.dtype.kind in "iu" and scale:
        return (values.astype(np.float64) - zero_point) * scale
    return values.astype(np.float64)


def matched(
    outputs: list[np.ndarray], reference: list[np.ndarray]
) -> tuple[list[np.ndarray], float]:
    """Return outputs in the reference's order, by shape and then by correlation.

    Names of outputs do not survive a conversion, so the Keras model's values tell them apart.
    """
    left = list(range(len(outputs)))
    ordered, least = [], 1.0
    for wanted in reference:
        fits = [i for i in left if outputs[i].size == wanted.size]
        if not fits:
            raise NoMatch(f"no output holds {wanted.size} values")
        best = max(fits, key=lambda i: _likeness(outputs[i], wanted))
        least = min(least, _likeness(outputs[best], wanted))
        left.remove(best)
        ordered.append(outputs[best].reshape(wanted.shape))
    return ordered, least


def _likeness(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.ravel() - a.mean(), b.ravel() - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size else 0.0
