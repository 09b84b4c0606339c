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
from shrink.compact.concatenate import concatenation, groups_of
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


def kernels(graph: Graph) -> tuple[list[Kernel], list[int]]:
    """Return the kernels that TFLM_DECODE could read, and the other constants of int8.

    Returns:
        Kernels, and the index of each other constant of int8 that is not small.
    """
    found, others = [], []
    for index in graph.used():
        tensor = graph.tensors[index]
        stored = tensor.constant and tensor.stored is not None
        if stored and tensor.dtype == "INT8" and tensor.size_bytes >= _LEAST_BYTES:
            if _can_be_decoded(graph, index):
                found.append(_kernel(graph, index))
            else:
                others.append(index)
    return found, others


_LEAST_BYTES = 256
"""A smaller kernel saves less than the operator takes."""


def _can_be_decoded(graph: Graph, index: int) -> bool:
    """Whether a constant is symmetric, is no other tensor too, and is read as a kernel alone."""
    tensor = graph.tensors[index]
    axis, channels = tensor.quantized_dimension, len(tensor.scales)
    # With fewer zero points than scales TFLite Micro would see one channel.
    if not channels or len(tensor.zero_points) != channels or any(tensor.zero_points):
        return False
    if channels > 1 and (axis not in (0, len(tensor.shape) - 1) or tensor.shape[axis] != channels):
        return False
    same = sum(graph.tensors[one].buffer == tensor.buffer for one in graph.used())
    if index in graph.outputs or (tensor.buffer >= 0 and same > 1):
        return False
    return all(
        one.name in _READERS
        and [i for i, read in enumerate(one.inputs) if read == index] == [_KERNEL]
        for one in graph.operators
        if index in one.inputs
    )


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
    biases = [graph.tensors[index] for index in operator.inputs[_BIAS:] if index >= 0]
    return whole and all(
        one.constant and one.dtype in _BIASES and one.shape == kernel.shape[:1] for one in biases
    )


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
        outputs = []
        for start, end in bounds(channels, parts):
            whole = parts == 1
            outputs.append(
                operator.outputs[0] if whole else self._part(operator.outputs[0], -1, start, end)
            )
            self._one(operator, kernel, (start, end), outputs[-1])
        while len(outputs) > 1:
            outputs = self._concatenated(outputs, operator.outputs[0])

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
        channels = slice(None) if tuple(shape) == tensor.shape else slice(start, end)
        stored = _described(tensor, channels)
        return self._add(Tensor("", tuple(shape), tensor.dtype, stored=stored))

    def _bias(self, index: int, start: int, end: int) -> int:
        tensor, some = self._graph.tensors[index], self._graph.values(index)[start:end]
        stored = _described(tensor, slice(start, end))
        return self._add(dataclasses.replace(constant_tensor(some), stored=stored))

    def _concatenated(self, parts: Sequence[int], output: int) -> list[int]:
        """Concatenate parts of an output along its last axis, as many at a time as can be."""
        groups, joined = list(groups_of(parts)), []
        for group in groups:
            width = sum(self.tensors[one].shape[-1] for one in group)
            joined.append(output if len(groups) == 1 else self._part(output, -1, 0, width))
            axis = len(self.tensors[output].shape) - 1
            self.operators.append(concatenation(group, joined[-1], axis))
        return joined


def _described(tensor: Tensor, channels: slice) -> schema.TensorT | None:
    """Return the description of some channels of a tensor, without a name, minima and maxima."""
    if tensor.stored is None:
        return None
    stored = copy.copy(tensor.stored)
    stored.name = None
    if (given := tensor.stored.quantization) is not None:
        stored.quantization = some = copy.copy(given)
        some.min = some.max = None
        if len(tensor.scales) <= 1:
            some.quantizedDimension = (
                0  # TFLM_DECODE refuses another one, though there is one scale
            )
        else:
            some.scale = np.asarray(given.scale)[channels]
            if given.zeroPoint is not None:
                some.zeroPoint = np.asarray(given.zeroPoint)[channels]
    return stored


def shown_name(graph: Graph, kernel: Kernel) -> str:
    """Return the name of what a kernel's first reader writes, else its number in the given file."""
    first = kernel.readers[0]
    operator = graph.operators[first]
    return graph.tensors[operator.outputs[0]].name or f"{operator.name} {graph.origins[first]}"
