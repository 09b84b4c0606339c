"""Errors of each layer's output, and biases corrected by them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shrink.base.errors import ShrinkError
from shrink.quantization.calibration import Batches, Ranges, portions
from shrink.tflite.edit import exposing, with_constants
from shrink.tflite.interpreter import load
from shrink.tflite.model import Operator, Subgraph, read, values
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
    each = 4 * sum(original.tensors[i].elements for i in signals)
    count = max(1, min(row_count(inputs), _MOST_BYTES // max(each, 1)))
    try:
        first, second = load(exposing(reference, signals)), load(exposing(content, changed))
        totals = np.zeros((len(operators), 4))
        for start in range(0, count, _BATCH):
            end = min(start + _BATCH, count)
            rows = {name: array[start:end] for name, array in inputs.items()}
            outputs = zip(first.predict(rows, _BATCH), second.predict(rows, _BATCH), strict=True)
            totals += [noise_sums(a, b) for a, b in outputs]
    except ShrinkError:
        return {}
    return {o: noise_figures(*row) for o, row in zip(operators, totals.tolist(), strict=True)}


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


def noise_sums(signal: np.ndarray, other: np.ndarray) -> list[float]:
    """Return the arguments of `noise_figures` over the elements that are finite in both arrays.

    A guard such as `where(s > 0, x / s, 0)` discards the other elements.
    """
    finite = np.isfinite(signal) & np.isfinite(other)
    a, b = signal[finite].astype(np.float64), other[finite].astype(np.float64)
    return [float(a @ a), float(np.sum((a - b) ** 2)), float(a @ b), float(b @ b)]


def noise_figures(
    power: float, noise: float, product: float, other: float
) -> tuple[float | None, float]:
    """Return signal to noise in dB (None: no difference) and the cosine."""
    snr = 10 * float(np.log10(power / noise)) if power and noise else None
    lengths = float(np.sqrt(power * other))
    return snr, product / lengths if lengths else float(noise == 0)


_BIAS = 2
_OPEN = (-np.inf, np.inf)
_BIASED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})


def with_corrected_biases(
    content: bytes, reference: bytes, batches: Batches, bounds: Ranges | None = None
) -> bytes:
    """Return an int8 model whose operators' outputs have the float model's mean in each channel.

    Rounded weights and clipped activations shift means, and later operators add these shifts up.
    From the first operator to the last, what is left of the shift is taken off its int32 bias
    (Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction",
    section 4.2 and appendix D, with the means of examples).

    Args:
        content: the quantized .tflite file.
        reference: the float one that it was made from.
        batches: unlabelled examples, read once for each operator.
        bounds: ranges that tensors of the float one saturate at on purpose, by name: what lies
            beyond is no shift.

    Raises:
        ModelError: the graph cannot be run up to one of its operators.
    """
    graph, original = read(content)[0], read(reference)[0]
    matches = matching_tensors(graph, original)
    biased = [number for number in matches if _is_biased(graph, graph.operators[number])]
    if not biased:
        return content
    compared = [matches[number] for number in biased]
    limits = [(bounds or {}).get(original.tensors[i].name, _OPEN) for i in compared]
    reference_means = _means(reference, compared, batches, limits)
    for number, mean in zip(biased, reference_means, strict=True):
        operator = graph.operators[number]
        (now,) = _means(content, [operator.outputs[0]], batches)
        bias = _shifted(graph, operator, mean - now)
        content = with_constants(content, {(number, _BIAS): bias})
    return content


def _is_biased(graph: Subgraph, operator: Operator) -> bool:
    if operator.name not in _BIASED or len(operator.inputs) <= _BIAS:
        return False
    index = operator.inputs[_BIAS]
    if index < 0 or graph.tensors[operator.outputs[0]].dtype != "INT8":
        return False
    tensor = graph.tensors[index]
    return tensor.dtype == "INT32" and tensor.constant and len(tensor.scales) > 0


def _shifted(graph: Subgraph, operator: Operator, shift: np.ndarray) -> np.ndarray:
    """Return the operator's int32 bias with `shift`, in real numbers, added to it."""
    tensor = graph.tensors[operator.inputs[_BIAS]]
    stored = values(tensor)
    old = np.zeros(tensor.elements) if stored is None else stored.astype(np.float64)
    limits = np.iinfo(np.int32)
    moved = np.rint(old + shift / np.asarray(tensor.scales))
    return np.clip(moved, limits.min, limits.max).astype(np.int32)


def _means(
    content: bytes,
    tensors: Sequence[int],
    batches: Batches,
    limits: Sequence[tuple[float, float]] = (_OPEN,),
) -> list[np.ndarray]:
    """Return the mean of each channel of each tensor over examples and positions, float64."""
    runner = load(exposing(content, tensors))
    sums = [np.zeros(1) for _ in tensors]
    count = 0
    for arrays in portions(content, batches):
        found = runner.predict(arrays)
        outputs = [np.clip(o, *ends) for o, ends in zip(found, limits, strict=True)]
        channels = [o.reshape(len(o), -1, o.shape[-1]).mean(axis=1) for o in outputs]
        sums = [s + c.sum(axis=0, dtype=np.float64) for s, c in zip(sums, channels, strict=True)]
        count += row_count(arrays)
    return [s / max(count, 1) for s in sums]
