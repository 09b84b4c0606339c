"""What must hold of a run besides its figures, found with Keras, LiteRT and numpy alone."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tests.oracle import keras_models
from tests.oracle.flatbuffer import read as read_tflite
from tests.oracle.sizes import count_parameters

Run = Mapping[str, Any]
"""A run's report, with its folder as `folder`."""
KERNELS = ("Dense", "Conv1D", "Conv2D")


def read_run(folder: Path) -> dict[str, Any]:
    """Return a run's report, with its folder."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return {**report, "folder": folder}


def wrong(kind: str, said: Mapping[str, Any], run: Run) -> list[str]:
    """Return a sentence for everything that the stage was asked for and did not do.

    Args:
        kind: of the stage, the first of its kind in the run.
        said: its configuration as the recipe has it, with `before` and `after`.
        run: the report.
    """
    stage = next(one for one in run["stages"] if one["kind"] == kind)
    before = run["stages"][run["stages"].index(stage) - 1]
    found = list(_epochs(stage, said))
    if kind == "prune" and said.get("method") == "channels":
        found += _channels(stage, before, said, run)
    elif kind == "prune":
        found += _magnitude(stage, said, run)
    elif kind == "distill":
        found += _distilled(stage, said, run)
    else:
        found += _quantized(stage, before, said, run)
    return [*found, *_kept_zeros(run)]


def _model(stage: Mapping[str, Any], run: Run) -> Any:
    return keras_models.load(run["folder"] / stage["artifact"])


def _kernels(model: Any) -> dict[str, np.ndarray]:
    """Return the kernels that can be pruned, by layer."""
    layers = {name: one for name, one in keras_models.leaf_layers(model).items()}
    return {
        name: np.asarray(layer.kernel)
        for name, layer in layers.items()
        if type(layer).__name__ in KERNELS
    }


def _epochs(stage: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[str]:
    asked, training = said.get("epochs"), stage["training"]
    if asked is None or (asked == 0 and training is None):
        return
    stopped = "patience" in said.get("training", {})
    if training is None or (training["epochs"] != asked and not stopped):
        yield f"{asked} epochs were asked for, and the report says {training}"


def _magnitude(stage: Mapping[str, Any], said: Mapping[str, Any], run: Run) -> Iterator[str]:
    pattern, sparsity = said.get("pattern"), said.get("sparsity", 0.5)
    for name, kernel in _kernels(_model(stage, run)).items():
        zeros = int(np.sum(kernel == 0))
        if any(fnmatch.fnmatchcase(name, one) for one in said.get("exclude", ())):
            if zeros:
                yield f"{name} was excluded, and has {zeros} zeros"
            continue
        if pattern is None:
            if abs(zeros - sparsity * kernel.size) > 0.5 + 1e-9:
                yield f"{name} has {zeros} zeros of {kernel.size}, not {sparsity}"
        elif kernel.shape[-2] % 4 == 0:
            groups = np.moveaxis(kernel, -2, -1).reshape(-1, 4)
            each = (groups == 0).sum(axis=1)
            if pattern == "2:4" and not np.all(each == 2):
                yield f"{name} has groups of four with other than two zeros"
            if pattern == "block" and abs(np.sum(each == 4) - sparsity * len(each)) > 0.5 + 1e-9:
                yield f"{name} has {np.sum(each == 4)} blocks of {len(each)}, not {sparsity}"


def _channels(
    stage: Mapping[str, Any], before: Mapping[str, Any], said: Mapping[str, Any], run: Run
) -> Iterator[str]:
    now, then = _model(stage, run), _model(before, run)
    smaller, larger = _kernels(now), _kernels(then)
    if not said.get("rebuild", True):
        if {n: k.shape for n, k in smaller.items()} != {n: k.shape for n, k in larger.items()}:
            yield "shapes changed without a rebuild"
        return
    if now.count_params() >= then.count_params():
        yield "no layer became narrower"
    yield from _widths(smaller, larger, said)
    yield from _budget(stage, before, said, run)


def _widths(
    smaller: Mapping[str, np.ndarray], larger: Mapping[str, np.ndarray], said: Mapping[str, Any]
) -> Iterator[str]:
    multiple = said.get("round_to", 1)
    for name, kernel in larger.items():
        width, now = kernel.shape[-1], smaller[name].shape[-1]
        if now != width and now % multiple:
            yield f"{name} has {now} channels, no multiple of {multiple}"
        if now != width and any(fnmatch.fnmatchcase(name, p) for p in said.get("exclude", ())):
            yield f"{name} was excluded, and went from {width} to {now}"
        if now < width - 1 and "ratio" in said and said.get("allocation", "uniform") == "uniform":
            ratio = max(said["ratio"], *said.get("ratios", {"": 0.0}).values())
            if width - now > ratio * width + 1:
                yield f"{name} went from {width} to {now} at a ratio of {ratio}"


def _budget(
    stage: Mapping[str, Any], before: Mapping[str, Any], said: Mapping[str, Any], run: Run
) -> Iterator[str]:
    for figure in ("macs", "parameters"):
        if figure in said:
            left, whole = stage["size"][figure], before["size"][figure]
            if not 0.4 * said[figure] * whole < left <= said[figure] * whole:
                yield f"{figure}: {left} of {whole} are left, and {said[figure]} was asked for"
    final = run["stages"][-1]
    for figure, group in (("file_bytes", "size"), ("arena_bytes", "memory")):
        if figure not in said:
            continue
        name = "tflite_bytes" if figure == "file_bytes" else figure
        whole = said.get("file_precision", "float32") == "float32"
        held = stage if whole else final if final["artifact"].endswith(".tflite") else None
        if held is not None and held[group][name] > said[figure]:
            yield f"{figure}: {held[group][name]} of at most {said[figure]}"


def _distilled(stage: Mapping[str, Any], said: Mapping[str, Any], run: Run) -> Iterator[str]:
    if said.get("control") and not stage["details"].get("control"):
        yield "there is no control"
    if "width" in (said.get("student") or ()) and isinstance(said["student"], dict):
        first = _model(stage, run).get_layer("first").get_weights()[0]
        if first.shape[-1] != 4:
            yield f"half of 8 channels is {first.shape[-1]}"
    if isinstance(said.get("student"), dict) and "depth" in said["student"]:
        held, whole = (len(_kernels(_model(one, run))) for one in (stage, run["stages"][0]))
        if held >= whole:
            yield f"half of the depth has {held} kernels of {whole}"
    if (said.get("teacher_cache") == "on") and "asked" not in json.dumps(stage["details"]):
        yield "nothing says that the teacher was asked"


def _quantized(
    stage: Mapping[str, Any], before: Mapping[str, Any], said: Mapping[str, Any], run: Run
) -> Iterator[str]:
    path = run["folder"] / stage["artifact"]
    interpreter = Interpreter(model_path=str(path))
    scheme = said.get("scheme", "static_wi8_ai8")
    default = {"static_wi8_ai8": "int8", "static_wi8_ai16": "int16"}.get(scheme, "float32")
    if scheme == "mixed" and said.get("activations", "int8") == "int8":
        default = "int8"
    for side, details in (
        ("input_type", interpreter.get_input_details()),
        ("output_type", interpreter.get_output_details()),
    ):
        wanted = said.get(side, default)
        for detail in details:
            kind = np.dtype(detail["dtype"]).name
            whole = side == "input_type" and "tokens" in detail["name"]
            if kind != wanted and not (whole and kind in ("int32", "float32")):
                yield f"{detail['name']} is {kind}, and {side} {wanted}"
    if "file_bytes" in said and path.stat().st_size > said["file_bytes"]:
        yield f"{path.stat().st_size} bytes of at most {said['file_bytes']}"
    yield from _weight_types(path, scheme)
    if said.get("embed_metadata") and b"shrink" not in path.read_bytes():
        yield "there is no metadata"


def _weight_types(path: Path, scheme: str) -> Iterator[str]:
    kinds = set()
    for graph in read_tflite(path).graphs:
        widened = {
            operator.outputs[0].index: operator.inputs[0]
            for operator in graph.operators
            if operator.name in ("DEQUANTIZE", "DENSIFY")
        }
        for operator in graph.operators:
            if operator.name in ("CONV_2D", "FULLY_CONNECTED"):
                kernel = operator.inputs[1]
                while kernel is not None and kernel.index in widened:
                    kernel = widened[kernel.index]
                if kernel is not None and kernel.values is not None:
                    kinds.add(kernel.dtype)
    narrow = {"wi8": "int8", "wi4": "int4", "float16": "float16", "float32": "float32"}
    wanted = next((kind for part, kind in narrow.items() if part in scheme), None)
    also = {"int8"} if wanted == "int4" else {"float32"} if wanted == "float16" else set()
    if wanted is not None and (wanted not in kinds or kinds - {wanted} - also):
        yield f"{scheme} has weights of {sorted(kinds)}"


def _kept_zeros(run: Run) -> Iterator[str]:
    """Yield what later stages lost of the zeros that pruning by magnitude made."""
    pruned: dict[str, np.ndarray] = {}
    for stage in run["stages"]:
        if stage["artifact"].endswith(".keras"):
            kernels = _kernels(_model(stage, run))
            for name, mask in pruned.items():
                there = name in kernels and kernels[name].shape == mask.shape
                if there and np.any(kernels[name][mask]):
                    yield f"{stage['name']}: {name} lost zeros"
            if stage["kind"] == "prune":
                pruned = {n: k == 0 for n, k in kernels.items() if np.any(k == 0)}
        elif pruned:
            path = run["folder"] / stage["artifact"]
            wanted = sum(int(mask.sum()) for mask in pruned.values())
            elements, nonzero = count_parameters(path)
            if elements - nonzero < wanted:
                yield f"{stage['name']}: {elements - nonzero} zeros are left of {wanted}"
