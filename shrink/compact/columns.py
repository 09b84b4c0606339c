"""Signals of one dimension, rewritten as Nx1 columns, so that row tiles run through them.

Converters write a convolution over time as one over the columns of a single row, (1, 1, steps,
channels), with RESHAPEs to (1, steps, channels) between operators. There is one row to cut. The
same bytes are those of (1, steps, 1, channels), a column: kernels, strides and paddings change
their axis, no value does, and the RESHAPEs between are gone. Operators that are no part of it
get the shape that they had.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.graph import Graph, mean_the_same
from shrink.compact.passes import RESHAPES
from shrink.compact.rows import CONVOLUTIONS, POINTWISE, POOLS
from shrink.tflite.model import Operator, Tensor, constant_tensor


def with_columns(graph: Graph) -> Graph:
    """Return the graph with its one-dimensional signals as columns; as it is where none is.

    It pays where row tiles do: CMSIS-NN has a faster kernel for a row than for a column.
    """
    is_column = {id(operator): _runs_on_columns(graph, operator) for operator in graph.operators}
    if not any(is_column[id(o)] and o.name in CONVOLUTIONS for o in graph.operators):
        return graph
    build = _Build(graph)
    for operator in graph.operators:
        if is_column[id(operator)] and operator.name in RESHAPES:
            build.alias(operator)
        elif is_column[id(operator)]:
            build.add_column(operator)
        else:
            build.keep(operator)
    return build.graph()


def column(shape: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """Return the shape of a signal (1, 1, steps, channels) or (1, steps, channels), as a column.

    Returns:
        None for what is no signal.
    """
    if len(shape) == 3 and shape[0] == 1:
        return 1, shape[1], 1, shape[2]
    if len(shape) == 4 and shape[0] == 1 and 1 in shape[1:3]:
        return 1, shape[1] * shape[2], 1, shape[3]
    return None


def _runs_on_columns(graph: Graph, operator: Operator) -> bool:
    """Whether an operator does the same to columns."""
    if len(operator.outputs) != 1 or not operator.inputs or min(operator.inputs[:2]) < 0:
        return False
    source, output = (graph.tensors[i] for i in (operator.inputs[0], operator.outputs[0]))
    before, after = column(source.shape), column(output.shape)
    if before is None or after is None or source.constant:
        return False
    flat = _is_flat(source.shape) and _is_flat(output.shape)
    if operator.name in RESHAPES:
        return before == after and mean_the_same(source, output)
    if operator.name in CONVOLUTIONS:
        weights = graph.tensors[operator.inputs[1]]
        by_row = weights.constant and len(weights.shape) == 4 and weights.shape[1] == 1
        return flat and by_row and operator.options is not None
    if operator.name in POOLS:
        options = operator.options
        return flat and options is not None and options.filterHeight == 1
    if operator.name == "CONCATENATION":
        by_channels = operator.options is not None
        by_channels = by_channels and operator.options.axis % len(output.shape) == (
            len(output.shape) - 1
        )
        shapes = [graph.tensors[index].shape for index in operator.inputs]
        whole = len(graph.activations(operator.inputs)) == len(operator.inputs)
        return by_channels and whole and all(shape[:-1] == output.shape[:-1] for shape in shapes)
    if operator.name == "PAD":
        return _paddings(graph, operator) is not None
    return operator.name in POINTWISE and _is_pointwise(graph, operator, output.shape)


def _is_flat(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and shape[1] == 1


def _is_pointwise(graph: Graph, operator: Operator, output: tuple[int, ...]) -> bool:
    for index in operator.inputs:
        tensor = graph.tensors[index]
        by_channel = all(size == 1 for size in tensor.shape[:-1])
        if not (graph.is_activation(index) and tensor.shape == output) and not (
            tensor.constant and by_channel
        ):
            return False
    return True


def _paddings(graph: Graph, operator: Operator) -> Array | None:
    """Return the paddings of a column; None where a PAD adds to anything but steps."""
    if len(operator.inputs) != 2 or not graph.tensors[operator.inputs[1]].constant:
        return None
    source = graph.tensors[operator.inputs[0]].shape
    pairs = graph.values(operator.inputs[1]).reshape(-1, 2)
    axis = 1 if len(source) == 3 else 2
    others = [pair.tolist() for place, pair in enumerate(pairs) if place != axis]
    if len(pairs) != len(source) or (len(source) == 4 and source[1] != 1) or np.any(others):
        return None
    return np.array([[0, 0], pairs[axis], [0, 0], [0, 0]], np.int32)


class _Build:
    """A graph in the making; a root is the first of tensors that hold the same bytes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors = list(graph.tensors)
        self._operators: list[Operator] = []
        self._root: dict[int, int] = {}
        self._column: dict[int, int] = {}
        self._flat: dict[tuple[int, tuple[int, ...]], int] = {}
        for index in graph.inputs:
            self._flat[index, graph.tensors[index].shape] = index

    def graph(self) -> Graph:
        """Return the graph, its outputs in the shapes that they had."""
        for index in self._graph.outputs:
            self._in_shape(index, index)
        return dataclasses.replace(
            self._graph, tensors=tuple(self._tensors), operators=tuple(self._operators)
        )

    def alias(self, operator: Operator) -> None:
        """Leave out an operator whose output holds the bytes of its input."""
        self._root[operator.outputs[0]] = self._root_of(operator.inputs[0])

    def add_column(self, operator: Operator) -> None:
        """Add an operator that reads and writes columns."""
        graph, output = self._graph, operator.outputs[0]
        inputs = [self._as_column(i) if graph.is_activation(i) else i for i in operator.inputs]
        options = operator.options
        if operator.name in CONVOLUTIONS:
            weights = graph.tensors[inputs[1]]
            one, _, kernel, other = weights.shape
            inputs[1] = self._new(dataclasses.replace(weights, shape=(one, kernel, 1, other)))
        if operator.name in (*CONVOLUTIONS, *POOLS):
            options = _transposed(options)
        if operator.name == "CONCATENATION":
            options = copy.copy(options)
            options.axis = 3
        if operator.name == "PAD":
            paddings = _paddings(graph, operator)
            assert paddings is not None, "checked before"
            inputs[1] = self._new(constant_tensor(paddings))
        shape = column(graph.tensors[output].shape)
        assert shape is not None, "checked before"
        as_column = dataclasses.replace(graph.tensors[output], shape=shape)
        place = output
        if output in graph.outputs:
            place = self._new(as_column)
        else:
            self._tensors[output] = as_column
        self._column[output] = place
        self._operators.append(
            dataclasses.replace(operator, inputs=tuple(inputs), outputs=(place,), options=options)
        )

    def keep(self, operator: Operator) -> None:
        """Add an operator as it is, on tensors of the shapes that it knows."""
        graph = self._graph
        inputs = [self._in_shape(i) if graph.is_activation(i) else i for i in operator.inputs]
        self._operators.append(dataclasses.replace(operator, inputs=tuple(inputs)))
        for index in operator.outputs:
            self._flat[index, graph.tensors[index].shape] = index

    def _root_of(self, index: int) -> int:
        return self._root.get(index, index)

    def _as_column(self, index: int) -> int:
        root = self._root_of(index)
        if root not in self._column:
            shape = column(self._graph.tensors[index].shape)
            assert shape is not None, "checked before"
            added = self._new(dataclasses.replace(self._graph.tensors[index], shape=shape))
            self._reshape(self._any(root), added)
            self._column[root] = added
        return self._column[root]

    def _in_shape(self, index: int, place: int | None = None) -> int:
        """Return a tensor of the shape that one had, at a place in the list where one is given."""
        root, shape = self._root_of(index), self._graph.tensors[index].shape
        found = self._flat.get((root, shape))
        if found is None or place not in (None, found):
            given = self._graph.tensors[index]
            found = self._new(given) if place is None else place
            self._reshape(self._any(root), found)
            self._flat.setdefault((root, shape), found)
        return found

    def _any(self, root: int) -> int:
        """Return a tensor that holds a root's bytes."""
        if root in self._column:
            return self._column[root]
        return next(index for (one, _), index in self._flat.items() if one == root)

    def _reshape(self, source: int, output: int) -> None:
        shape = np.array(self._tensors[output].shape, np.int32)
        options = schema.ReshapeOptionsT()
        options.newShape = shape
        inputs = (source, self._new(constant_tensor(shape)))
        self._operators.append(Operator("RESHAPE", False, inputs, (output,), options=options))

    def _new(self, tensor: Tensor) -> int:
        self._tensors.append(tensor)
        return len(self._tensors) - 1


def _transposed(options: Any) -> Any:
    """Return what a kernel does to columns in place of rows."""
    turned = copy.copy(options)
    turned.strideH, turned.strideW = options.strideW, 1
    pairs = (("dilationHFactor", "dilationWFactor"), ("filterHeight", "filterWidth"))
    for high, wide in pairs:
        if hasattr(options, high):
            setattr(turned, high, getattr(options, wide))
            setattr(turned, wide, 1)
    return turned
