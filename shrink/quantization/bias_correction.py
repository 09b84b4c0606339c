"""Biases of an integer model that keep the means of the float model's activations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shrink.quantization.calibration import Batches
from shrink.quantization.layer_error import matching_tensors
from shrink.tflite.edit import exposing, with_constants
from shrink.tflite.flatbuffer import Operator, Subgraph, read, values
from shrink.tflite.interpreter import load
from shrink.tflite.names import row_count

_BIAS = 2
_BIASED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})


def with_corrected_biases(content: bytes, reference: bytes, batches: Batches) -> bytes:
    """Return an int8 model whose operators' outputs have the float model's mean in each channel.

    Rounded weights and clipped activations shift means, and later operators add these shifts up.
    From the first operator to the last, what is left of the shift is taken off its int32 bias
    (Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction",
    section 4.2 and appendix D, with the means of examples).

    Args:
        content: the quantized .tflite file.
        reference: the float one that it was made from.
        batches: unlabelled examples, read once for each operator.

    Raises:
        ModelError: the graph cannot be run up to one of its operators.
    """
    graph, original = read(content)[0], read(reference)[0]
    matches = matching_tensors(graph, original)
    biased = [number for number in matches if _is_biased(graph, graph.operators[number])]
    if not biased:
        return content
    wanted = _means(reference, [matches[number] for number in biased], batches)
    for number, mean in zip(biased, wanted, strict=True):
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


def _means(content: bytes, tensors: Sequence[int], batches: Batches) -> list[np.ndarray]:
    """Return the mean of each channel of each tensor over examples and positions, float64."""
    runner = load(exposing(content, tensors))
    sums = [np.zeros(1) for _ in tensors]
    count = 0
    for arrays in batches:
        outputs = runner.predict(arrays)
        channels = [o.reshape(len(o), -1, o.shape[-1]).mean(axis=1) for o in outputs]
        sums = [s + c.sum(axis=0, dtype=np.float64) for s, c in zip(sums, channels, strict=True)]
        count += row_count(arrays)
    return [s / max(count, 1) for s in sums]
