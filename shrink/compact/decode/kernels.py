"""Kernels stored in fewer bytes, which TFLM_DECODE makes dense in the arena.

One TFLM_DECODE stands right before each operator that reads such a kernel: where firmware gives
decoded tensors memory of their own, they last until the next operator. A kernel that is too large
to be dense at once is cut into groups of output channels, each decoded for a copy of the operator
that computes these channels; the copies' outputs are concatenated. Every output channel is computed
from its own weights alone, so that all bytes stay as they were.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.concatenate import MOST_CONCATENATED, concatenation
from shrink.compact.decode.codec import Encoded, smallest_form
from shrink.compact.graph import Graph
from shrink.tflite.litert_twin import DECODE
from shrink.tflite.model import Operator, Tensor, constant_tensor

_KERNEL, _BIAS = 1, 2
_READERS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"})
_SPLIT = frozenset({"CONV_2D", "FULLY_CONNECTED"})
_BIASES = ("INT32", "INT64")


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel that TFLM_DECODE could read.

    Attributes:
        index: of the tensor.
        values: int8, of its shape.
        channel_axis: along which its scales lie, where there are several.
        readers: numbers of the operators that read it.
        splits: whether its operators can compute some output channels at a time.
    """

    index: int
    values: Array
    channel_axis: int | None
    readers: tuple[int, ...]
    splits: bool

    def form(self, start: int = 0, end: int | None = None) -> Encoded:
        """Return the smallest form of some of its output channels."""
        return smallest_form(self.values[start:end], self.channel_axis)


def kernels(graph: Graph) -> tuple[list[Kernel], list[tuple[int, str]]]:
    """Return the kernels that TFLM_DECODE could read, and why others of int8 cannot be.

    Returns:
        Kernels, and the index of each other constant of int8 that is not small, with the reason.
    """
    found, others = [], []
    for index in graph.used():
        tensor = graph.tensors[index]
        if not tensor.constant or tensor.dtype != "INT8":
            continue
        if tensor.stored is None or tensor.size_bytes < _LEAST_BYTES:
            continue
        reason = _why_not(graph, index)
        if reason:
            others.append((index, reason))
        else:
            found.append(_kernel(graph, index))
    return found, others


_LEAST_BYTES = 256
"""A smaller kernel saves less than the operator takes."""


def _why_not(graph: Graph, index: int) -> str:
    tensor = graph.tensors[index]
    if not tensor.scales:
        return "it has no scale"
    if len(tensor.zero_points) != len(tensor.scales):
        return "it has not as many zero points as scales"  # TFLite Micro would see one channel
    if any(tensor.zero_points):
        return "its zero point is not 0"
    axis, channels = tensor.quantized_dimension, len(tensor.scales)
    if channels > 1 and (axis not in (0, len(tensor.shape) - 1) or tensor.shape[axis] != channels):
        return "its scales lie along neither its first nor its last axis"
    same = sum(graph.tensors[one].buffer == tensor.buffer for one in graph.used())
    if index in graph.outputs or (tensor.buffer >= 0 and same > 1):
        return "its values are those of another tensor too"
    for operator in graph.operators:
        places = [place for place, one in enumerate(operator.inputs) if one == index]
        if places and (places != [_KERNEL] or operator.name not in _READERS):
            return f"{operator.name} reads it, which is not known to read what is decoded"
    return ""


def _kernel(graph: Graph, index: int) -> Kernel:
    tensor = graph.tensors[index]
    axis = tensor.quantized_dimension if len(tensor.scales) > 1 else None
    readers = tuple(n for n, one in enumerate(graph.operators) if index in one.inputs)
    splits = axis in (0, None) and all(_splits(graph, graph.operators[n]) for n in readers)
    return Kernel(index, graph.values(index), axis, readers, splits)


def _splits(graph: Graph, operator: Operator) -> bool:
    kernel = graph.tensors[operator.inputs[_KERNEL]]
    output = graph.tensors[operator.outputs[0]]
    whole = operator.name in _SPLIT and output.shape[-1:] == kernel.shape[:1]
    if operator.name == "CONV_2D":  # not one in groups, whose channels read some inputs alone
        whole = whole and graph.tensors[operator.inputs[0]].shape[-1] == kernel.shape[-1]
    biased = len(operator.inputs) > _BIAS and operator.inputs[_BIAS] >= 0
    return whole and (not biased or _is_plain_bias(graph, operator.inputs[_BIAS], kernel.shape[0]))


def _is_plain_bias(graph: Graph, index: int, channels: int) -> bool:
    bias = graph.tensors[index]
    known = bias.constant and bias.stored is not None and bias.dtype in _BIASES
    return known and bias.shape == (channels,)


def bounds(channels: int, parts: int) -> list[tuple[int, int]]:
    """Return where each of so many parts of nearly equal size starts and ends."""
    edges = [channels * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(edges))


def with_decode(graph: Graph, found: Sequence[Kernel], parts: Mapping[int, int]) -> Graph:
    """Return the graph with some kernels stored in their smallest form.

    Args:
        graph: to rewrite.
        found: kernels of the graph.
        parts: by the tensor's index, into how many parts its channels are cut; those that are not
            named stay dense.
    """
    by_index = {kernel.index: kernel for kernel in found if kernel.index in parts}
    writer = _Writer(graph, parts)
    for operator in graph.operators:
        kernel = by_index.get(operator.inputs[_KERNEL]) if len(operator.inputs) > 1 else None
        if kernel is None:
            writer.operators.append(operator)
        else:
            writer.decode(operator, kernel)
    tensors, operators = tuple(writer.tensors), tuple(writer.operators)
    return dataclasses.replace(graph, tensors=tensors, operators=operators)


class _Writer:
    """Collects tensors and operators of the new graph."""

    def __init__(self, graph: Graph, parts: Mapping[int, int]) -> None:
        self.tensors = list(graph.tensors)
        self.operators: list[Operator] = []
        self._graph = graph
        self._parts = parts
        self._encoded: dict[tuple[int, int], tuple[int, int]] = {}

    def decode(self, operator: Operator, kernel: Kernel) -> None:
        """Add an operator, or one for each part of its channels, each with its TFLM_DECODE."""
        channels, parts = len(kernel.values), self._parts[kernel.index]
        if parts == 1:
            self._one(operator, kernel, (0, channels), operator.outputs[0])
            return
        outputs = []
        for start, end in bounds(channels, parts):
            output = self._part(operator.outputs[0], -1, start, end)
            self._one(operator, kernel, (start, end), output)
            outputs.append(output)
        self._concatenate(outputs, operator.outputs[0])

    def _one(self, operator: Operator, kernel: Kernel, span: tuple[int, int], output: int) -> None:
        start, end = span
        stored, ancillary = self._stored(kernel, start, end)
        dense = self._part(kernel.index, 0, start, end)
        self.operators.append(Operator(DECODE, True, (stored, ancillary), (dense,)))
        inputs = list(operator.inputs)
        inputs[_KERNEL] = dense
        whole = (end - start) == len(kernel.values)
        if not whole and len(inputs) > _BIAS and inputs[_BIAS] >= 0:
            inputs[_BIAS] = self._bias(inputs[_BIAS], start, end)
        self.operators.append(
            dataclasses.replace(operator, inputs=tuple(inputs), outputs=(output,))
        )

    def _stored(self, kernel: Kernel, start: int, end: int) -> tuple[int, int]:
        """Return the tensors of a part's form, the same ones for each operator that reads it."""
        if (kernel.index, start) not in self._encoded:
            form = kernel.form(start, end)
            both = [self._add(constant_tensor(values)) for values in (form.stored, form.ancillary)]
            self._encoded[kernel.index, start] = both[0], both[1]
        return self._encoded[kernel.index, start]

    def _add(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _part(self, index: int, axis: int, start: int, end: int) -> int:
        """Add an activation like a tensor, of some of its channels; return its index."""
        tensor = self._graph.tensors[index]
        shape = list(tensor.shape)
        shape[axis] = end - start
        stored = self._described(tensor, tuple(shape), start, end)
        return self._add(Tensor("", tuple(shape), tensor.dtype, stored=stored))

    def _bias(self, index: int, start: int, end: int) -> int:
        tensor, some = self._graph.tensors[index], self._graph.values(index)[start:end]
        stored = self._described(tensor, some.shape, start, end)
        return self._add(dataclasses.replace(constant_tensor(some), stored=stored))

    @staticmethod
    def _described(
        tensor: Tensor, shape: tuple[int, ...], start: int, end: int
    ) -> schema.TensorT | None:
        """Return the description of some channels of a tensor, without a name."""
        if tensor.stored is None:
            return None
        stored = copy.copy(tensor.stored)
        stored.name, stored.buffer = None, 0
        stored.shape, stored.shapeSignature = np.array(shape, np.int32), None
        channels = slice(start, end) if shape != tensor.shape else slice(None)
        stored.quantization = _some_scales(stored.quantization, channels)
        return stored

    def _concatenate(self, parts: Sequence[int], output: int) -> None:
        """Concatenate along the last axis, ten inputs at a time, which is what the kernel takes."""
        while len(parts) > MOST_CONCATENATED:
            groups = bounds(len(parts), -(-len(parts) // MOST_CONCATENATED))
            parts = [self._group(parts[start:end], output) for start, end in groups]
        self._emit_concatenation(parts, output)

    def _group(self, parts: Sequence[int], output: int) -> int:
        if len(parts) == 1:
            return parts[0]
        width = sum(self.tensors[one].shape[-1] for one in parts)
        joined = self._part(output, -1, 0, width)
        self._emit_concatenation(parts, joined)
        return joined

    def _emit_concatenation(self, parts: Sequence[int], output: int) -> None:
        axis = len(self.tensors[output].shape) - 1
        self.operators.append(concatenation(parts, output, axis))


def _some_scales(
    stored: schema.QuantizationParametersT | None, channels: slice
) -> schema.QuantizationParametersT | None:
    """Return the quantization of some channels; without minima and maxima, which nothing reads."""
    if stored is None:
        return None
    some = copy.copy(stored)
    some.min = some.max = None
    if stored.scale is None or len(stored.scale) <= 1:
        some.quantizedDimension = 0  # TFLM_DECODE refuses another one, though there is one scale
    else:
        some.scale = np.asarray(stored.scale)[channels]
        if stored.zeroPoint is not None:
            some.zeroPoint = np.asarray(stored.zeroPoint)[channels]
    return some


def shown_name(graph: Graph, kernel: Kernel) -> str:
    """Return the name of what the first reader of a kernel writes, else the operator's number."""
    number = kernel.readers[0]
    operator = graph.operators[number]
    return graph.tensors[operator.outputs[0]].name or f"{operator.name} {number}"
