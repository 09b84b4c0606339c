"""A graph with segments of its operators run in row tiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.concatenate import concatenation
from shrink.compact.graph import Graph
from shrink.compact.rows import RESIZES, TRANSPOSED
from shrink.compact.schedule import CONCATENATE, SLICE, Schedule, Step, Tile
from shrink.compact.segment import Segment
from shrink.tflite.model import Operator, Tensor, constant_tensor

_INT8_VERSION = 2
"""Of SLICE, the first with kernels for int8."""


def tiled(graph: Graph, tilings: Sequence[tuple[Segment, Schedule]]) -> Graph:
    """Return a graph with segments of its operators in row tiles.

    Args:
        graph: of which the segments are.
        tilings: segments that do not overlap, in order, with their schedules.
    """
    build = _Build(graph)
    done = 0
    for segment, schedule in tilings:
        build.operators += graph.operators[done : segment.start]
        build.add(segment, schedule)
        done = segment.end
    operators = (*build.operators, *graph.operators[done:])
    return dataclasses.replace(graph, tensors=tuple(build.tensors), operators=operators)


class _Build:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.tensors = list(graph.tensors)
        self.operators: list[Operator] = []
        self._constants: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._index: dict[int, int] = {}

    def add(self, segment: Segment, schedule: Schedule) -> None:
        """Add the operators of a schedule."""
        ends = (schedule.entries, schedule.exits)
        self._index = {tile.number: tensor for e in ends for tensor, tile in e.items()}
        for step in schedule.steps:
            inputs = [self._tensor(tile) for tile in step.inputs]
            output = self._tensor(step.output)
            if step.operator == SLICE:
                start = step.output.start - step.inputs[0].start
                inputs.append(self._constant(np.array([0, start, 0, 0])))
                inputs.append(self._constant(np.array(self.tensors[output].shape)))
                options = schema.SliceOptionsT()
                self.operators.append(
                    Operator("SLICE", False, tuple(inputs), (output,), (), options, _INT8_VERSION)
                )
            elif step.operator == CONCATENATE:
                self.operators.append(concatenation(inputs, output, axis=1))
            else:
                self._add_copy(segment, step, inputs, output)

    def _tensor(self, tile: Tile) -> int:
        if tile.number not in self._index:
            like = self._graph.tensors[tile.tensor]
            shape = (1, tile.end - tile.start, *like.shape[2:])
            self._index[tile.number] = self._new(
                dataclasses.replace(like, shape=shape, no_alias=tile.no_alias)
            )
        return self._index[tile.number]

    def _new(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _constant(self, values: Array) -> int:
        data = np.ascontiguousarray(values, np.int32)
        key = (data.shape, data.tobytes())
        if key not in self._constants:
            self._constants[key] = self._new(constant_tensor(data))
        return self._constants[key]

    def _add_copy(self, segment: Segment, step: Step, by_rows: Sequence[int], output: int) -> None:
        """Add an operator of the segment that runs on tiles."""
        operator = self._graph.operators[step.operator]
        rule = segment.rules[step.operator - segment.start]
        inputs = list(operator.inputs)
        for number, index in zip(rule.inputs, by_rows, strict=True):
            inputs[number] = index
        shape = self.tensors[output].shape
        if operator.name == "PAD":
            inputs[1] = self._paddings(operator, step)
        elif operator.name in RESIZES:
            inputs[1] = self._constant(np.array(shape[1:3]))
        elif operator.name == TRANSPOSED:
            inputs[0] = self._constant(np.array(shape))
        self.operators.append(
            dataclasses.replace(operator, inputs=tuple(inputs), outputs=(output,))
        )

    def _paddings(self, operator: Operator, step: Step) -> int:
        paddings = np.array(self._graph.values(operator.inputs[1])).reshape(-1, 2)
        tile, output, above = step.inputs[0], step.output, paddings[1, 0]
        paddings[1] = tile.start + above - output.start, output.end - tile.end - above
        return self._constant(paddings)
