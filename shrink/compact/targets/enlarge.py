"""Nearest-neighbour enlargements by whole factors as concatenations, for NPUs without the factor.

Each pixel k times in a row is the tensor k times along its channels, read with other dimensions;
each row k times is the same of whole rows. Values are copied, none is computed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.compact.concatenate import MOST_CONCATENATED, concatenation
from shrink.compact.graph import Graph, Operator, OperatorCode, Tensor

ENLARGEMENT = "RESIZE_NEAREST_NEIGHBOR"
_RESHAPE = OperatorCode(schema.BuiltinOperator.RESHAPE, 1)


class Factors(NamedTuple):
    """How many rows and columns become of one."""

    rows: int
    columns: int


def with_copied_pixels(graph: Graph, places: Collection[int]) -> Graph:
    """Return the graph with those of some operators rewritten that are such enlargements.

    Args:
        graph: to rewrite.
        places: of operators; others are left as they are.
    """
    tensors, operators = list(graph.tensors), []
    for place, operator in enumerate(graph.operators):
        factors = _factors(graph, operator) if place in places else None
        if factors is None:
            operators.append(operator)
        else:
            operators += _copies(tensors, operator, factors)
    return Graph(tuple(tensors), tuple(operators), graph.inputs, graph.outputs, graph.model)


def _factors(graph: Graph, operator: Operator) -> Factors | None:
    """Return the factors of an enlargement whose pixels are copies; None of any other operator."""
    options = operator.options
    if operator.name != ENLARGEMENT or bool(getattr(options, "alignCorners", False)):
        return None
    given = graph.tensors[operator.inputs[0]].shape
    made = graph.tensors[operator.outputs[0]].shape
    half = bool(getattr(options, "halfPixelCenters", False))
    factors = [_factor(given[axis], made[axis], half) for axis in (1, 2)]
    rows, columns = factors
    return None if rows is None or columns is None else Factors(rows, columns)


def _factor(given: int, made: int, half: bool) -> int | None:
    """Return how often each place is copied; None where the kernel's rounding copies others.

    As TensorFlow Lite's kernel, places are found in float32.
    """
    if made % given or made // given > MOST_CONCATENATED:
        return None
    wanted = np.arange(made, dtype=np.float32)
    scale = np.float32(given) / np.float32(made)
    source = np.floor((wanted + np.float32(0.5 if half else 0.0)) * scale).astype(np.int64)
    factor = made // given
    return factor if np.array_equal(source, np.arange(made) // factor) else None


def _copies(tensors: list[Tensor], operator: Operator, factors: Factors) -> list[Operator]:
    source, result = operator.inputs[0], operator.outputs[0]
    own = tensors[source]
    batch, height, width, channels = own.shape

    def added(*shape: int) -> int:
        tensors.append(Tensor(shape, own.type, own.stored))
        return len(tensors) - 1

    wide = added(batch, height, width, factors.columns * channels)
    rows = added(batch, height, 1, width * factors.columns * channels)
    tall = added(batch, height, 1, factors.rows * width * factors.columns * channels)
    return [
        concatenation((source,) * factors.columns, wide, axis=3),
        _reshape(wide, rows, tensors[rows].shape),
        concatenation((rows,) * factors.rows, tall, axis=3),
        _reshape(tall, result, tensors[result].shape),
    ]


def _reshape(given: int, output: int, shape: tuple[int, ...]) -> Operator:
    options = schema.ReshapeOptionsT()
    options.newShape = np.array(shape, np.int32)
    return Operator(_RESHAPE, (given,), (output,), options, schema.BuiltinOptions.ReshapeOptions)
