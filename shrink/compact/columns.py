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
from shrink.compact.graph import Graph
from shrink.compact.passes import with_merged_reshapes, without_unread
from shrink.compact.rows import CONVOLUTIONS, POINTWISE, POOLS
from shrink.tflite.model import Operator, Tensor, constant_tensor


def with_columns(graph: Graph) -> Graph:
    """Return the graph with its one-dimensional signals as columns; as it is where none is.

    Each operator reads its input reshaped to a column, and what it writes is reshaped back;
    RESHAPEs between two of them are left out. It pays where row tiles do: CMSIS-NN has a faster
    kernel for a row than for a column.
    """
    chosen = {operator for operator in graph.operators if _runs_on_columns(graph, operator)}
    if not any(operator.name in CONVOLUTIONS for operator in chosen):
        return graph
    tensors, operators = list(graph.tensors), list[Operator]()
    as_before: dict[int, int] = {}  # tensors that have the shapes of those that are columns now

    def add(tensor: Tensor) -> int:
        tensors.append(tensor)
        return len(tensors) - 1

    def reshape(source: int, output: int) -> None:
        options = schema.ReshapeOptionsT()
        options.newShape = np.array(tensors[output].shape, np.int32)
        inputs = (source, add(constant_tensor(options.newShape)))
        operators.append(Operator("RESHAPE", False, inputs, (output,), options=options))

    for operator in graph.operators:
        inputs = [as_before.get(index, index) for index in operator.inputs]
        if operator not in chosen:
            operators.append(dataclasses.replace(operator, inputs=tuple(inputs)))
            continue
        for position, index in enumerate(operator.inputs):
            if graph.is_activation(index):
                source, inputs[position] = inputs[position], add(_as_column(graph.tensors[index]))
                reshape(source, inputs[position])
        options = copy.copy(operator.options)
        if operator.name in CONVOLUTIONS:
            one, _, kernel, other = graph.tensors[inputs[1]].shape
            turned = dataclasses.replace(graph.tensors[inputs[1]], shape=(one, kernel, 1, other))
            inputs[1] = add(turned)
        if operator.name in (*CONVOLUTIONS, *POOLS):
            _turn(options)
        elif operator.name == "CONCATENATION":
            options.axis = 3
        elif operator.name == "PAD":
            paddings = _paddings(graph, operator)
            assert paddings is not None, "checked before"
            inputs[1] = add(constant_tensor(paddings))
        output = written = operator.outputs[0]
        if output in graph.outputs:
            written = add(_as_column(graph.tensors[output]))
        else:
            as_before[output] = add(graph.tensors[output])
            tensors[output] = _as_column(graph.tensors[output])
        operators.append(
            dataclasses.replace(operator, inputs=tuple(inputs), outputs=(written,), options=options)
        )
        reshape(written, as_before.get(output, output))
    graph = dataclasses.replace(graph, tensors=tuple(tensors), operators=tuple(operators))
    return without_unread(with_merged_reshapes(graph))


def _as_column(tensor: Tensor) -> Tensor:
    shape = column(tensor.shape)
    assert shape is not None, "checked before"
    return dataclasses.replace(tensor, shape=shape)


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
    if column(source.shape) is None or column(output.shape) is None or source.constant:
        return False
    flat = _is_flat(source.shape) and _is_flat(output.shape)
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
    others = [pair.tolist() for other, pair in enumerate(pairs) if other != axis]
    if len(pairs) != len(source) or (len(source) == 4 and source[1] != 1) or np.any(others):
        return None
    return np.array([[0, 0], pairs[axis], [0, 0], [0, 0]], np.int32)


def _turn(options: Any) -> None:
    """Have a kernel do to columns what it does to rows."""
    options.strideH, options.strideW = options.strideW, 1
    for high, wide in (("dilationHFactor", "dilationWFactor"), ("filterHeight", "filterWidth")):
        if hasattr(options, high):
            setattr(options, high, getattr(options, wide))
            setattr(options, wide, 1)
