"""Inputs and outputs of a model or an artifact, and what an application must know of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.engine.microbatch import cast_inputs
from shrink.model.endings import output_ranges, traced
from shrink.model.endings.kinds import EndingKind, kind_of
from shrink.tflite.interpreter import load
from shrink.tflite.names import named, signature_names
from shrink.tflite.session import TensorDetail

Ask = Callable[[Any], list[np.ndarray[Any, Any]]]
"""Inputs (n, ...) as the data set stores them to one array (n, ...) for each output."""


@dataclass(frozen=True)
class Interface:
    """What a model takes and gives; shapes without the batch, None for an unknown side.

    Attributes:
        name: for messages; empty where nobody gave it one.
        inputs: shape of each input.
        outputs: shape of each output.
        endings: what each output is by the graph; None where the graph does not tell.
        scales: step of each output that is stored as integers, 0 for floats.
        input_names: of the inputs, as a converted model has them.
        output_names: of the outputs, as a recipe calls them.
        ask: runs the model.
    """

    name: str
    inputs: tuple[tuple[int | None, ...], ...]
    outputs: tuple[tuple[int | None, ...], ...]
    endings: tuple[EndingKind | None, ...]
    scales: tuple[float, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    ask: Ask


def keras_interface(model: keras.Model) -> Interface:
    """Return what a functional Keras model takes and gives."""

    def ask(x: Any) -> list[np.ndarray[Any, Any]]:
        outputs = model(cast_inputs(model, x), training=False)
        return [np.asarray(tf.cast(each, tf.float32)) for each in tf.nest.flatten(outputs)]

    return Interface(
        model.name,
        tuple(tuple(t.shape[1:]) for t in model.inputs),
        tuple(tuple(t.shape[1:]) for t in model.outputs),
        tuple(kind_of(found) for found in traced.output_ranges(model)),
        (0.0,) * len(model.outputs),
        tuple(signature_names(model.input_names)),
        tuple(model.output_names),
        ask,
    )


def artifact_interface(tflite: Path, input_names: Sequence[str] = ()) -> Interface:
    """Return what a TFLite artifact takes and gives.

    Args:
        tflite: the artifact.
        input_names: of the examples' inputs, in their order; by default in the artifact's own.
    """
    runner = load(tflite)
    ranges = output_ranges.output_ranges(tflite.read_bytes())
    own = runner.input_names
    fed = tuple(input_names) if sorted(own) == sorted(input_names) else own

    def ask(x: Any) -> list[np.ndarray[Any, Any]]:
        parts = [np.asarray(part, np.float32) for part in tf.nest.flatten(x)]
        return runner.predict(named(parts, fed))

    return Interface(
        "",  # a file of our own, whose name nobody gave
        tuple(tuple(detail.shape[1:]) for detail in runner.input_details),
        tuple(tuple(detail.shape[1:]) for detail in runner.output_details),
        tuple(kind_of(ranges[detail.index]) for detail in runner.output_details),
        tuple(detail.scale for detail in runner.output_details),
        own,
        tuple(detail.name for detail in runner.output_details),
        ask,
    )


def describe_interface(content: bytes, dataset: Dataset, data: DataConfig) -> dict[str, Any]:
    """Return `inputs` and `outputs`, `labels` by index, and `normalize`, as plain data.

    Args:
        content: the .tflite file.
        dataset: what it was measured on; its class names are the labels.
        data: its `normalize` is done to examples before the model sees them.
    """
    return {
        **describe_tensors(content),
        "labels": list(dataset.class_names) or None,
        "normalize": data.normalize.model_dump() if data.normalize is not None else None,
    }


def describe_tensors(content: bytes) -> dict[str, Any]:
    """Return `inputs` and `outputs` of a .tflite file: names, shapes, dtypes, scales."""
    runner = load(content)
    return {
        "inputs": [_tensor(detail) for detail in runner.input_details],
        "outputs": [_tensor(detail) for detail in runner.output_details],
    }


def _tensor(detail: TensorDetail) -> dict[str, Any]:
    is_quantized = detail.scale != 0
    return {
        "name": detail.name,
        "shape": list(detail.shape),
        "dtype": detail.dtype.name,
        "scale": detail.scale if is_quantized else None,
        "zero_point": detail.zero_point if is_quantized else None,
    }
