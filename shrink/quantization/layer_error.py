"""How far each operator's output is from what the float model has at the same place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shrink.base.errors import ShrinkError
from shrink.tflite.edit import exposing
from shrink.tflite.flatbuffer import Subgraph, read
from shrink.tflite.interpreter import load
from shrink.tflite.names import Named, row_count

_BATCH = 10
_MOST_BYTES = 64_000_000
_FLOATS = {"FLOAT32"}
_COMPARED = {"FLOAT32", "INT8", "UINT8", "INT16"}


def layer_errors(
    content: bytes, reference: bytes, inputs: Named
) -> dict[int, tuple[float | None, float]]:
    """Compare the outputs of operators with the float model's, on the same inputs.

    Each form runs from the inputs on, so that an error is that of the operator and of all before
    it. Tensors are matched by name, which quantizers keep.

    Args:
        content: the quantized .tflite file.
        reference: the float one.
        inputs: examples, float32 (n, ...) by the name of the model's input; fewer are taken where
            activations are large.

    Returns:
        By the index of the operator: signal to noise in dB (None: no difference) and cosine.
        Operators without a counterpart are left out; where a form cannot be run with all its
        activations as outputs, there are none.
    """
    graph, original = read(content)[0], read(reference)[0]
    pairs = matching_tensors(graph, original)
    if not pairs:
        return {}
    operators = list(pairs)
    changed = [graph.operators[o].outputs[0] for o in operators]
    signals = [pairs[o] for o in operators]
    count = _examples(original, signals, row_count(inputs))
    try:
        first, second = load(exposing(reference, signals)), load(exposing(content, changed))
        totals = np.zeros((len(operators), 4))
        for start in range(0, count, _BATCH):
            end = min(start + _BATCH, count)
            rows = {name: array[start:end] for name, array in inputs.items()}
            outputs = zip(first.predict(rows, _BATCH), second.predict(rows, _BATCH), strict=True)
            totals += [_sums(a, b) for a, b in outputs]
    except ShrinkError:
        return {}
    return {o: _figures(*row) for o, row in zip(operators, totals.tolist(), strict=True)}


def matching_tensors(graph: Subgraph, original: Subgraph) -> dict[int, int]:
    """Return, by operator, the tensor of the float model that has the name of its output."""
    return dict(_pairs(graph, original))


def _pairs(graph: Subgraph, original: Subgraph) -> Iterator[tuple[int, int]]:
    named = {
        original.tensors[i].name: i
        for operator in original.operators
        for i in operator.outputs
        if i >= 0 and original.tensors[i].dtype in _FLOATS
    }
    seen: set[int] = set()
    for number, operator in enumerate(graph.operators):
        tensor = graph.tensors[operator.outputs[0]] if operator.outputs else None
        if tensor is None or tensor.dtype not in _COMPARED or tensor.name not in named:
            continue
        other = named[tensor.name]
        same = original.tensors[other].shape == tensor.shape and len(tensor.shape) > 0
        if same and other not in seen:
            seen.add(other)
            yield number, other


def _examples(graph: Subgraph, tensors: list[int], most: int) -> int:
    each = 4 * sum(graph.tensors[i].elements for i in tensors)
    return max(1, min(most, _MOST_BYTES // max(each, 1)))


def _sums(signal: np.ndarray, other: np.ndarray) -> list[float]:
    a, b = signal.astype(np.float64).ravel(), other.astype(np.float64).ravel()
    return [float(a @ a), float(np.sum((a - b) ** 2)), float(a @ b), float(b @ b)]


def _figures(
    power: float, noise: float, product: float, other: float
) -> tuple[float | None, float]:
    snr = 10 * float(np.log10(power / noise)) if power and noise else None
    lengths = float(np.sqrt(power * other))
    return snr, product / lengths if lengths else float(noise == 0)
