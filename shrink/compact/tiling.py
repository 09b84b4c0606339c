"""A graph with segments of its operators run in row tiles."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.concatenate import concatenation
from shrink.compact.graph import Graph
from shrink.compact.rows import RESIZES, TRANSPOSED
from shrink.compact.schedule import CONCATENATE, PAD, SLICE, Schedule, Step, Tile
from shrink.compact.segment import Segment
from shrink.tflite.model import Operator, Tensor, constant_tensor

_INT8_VERSION = 2
"""Of SLICE, CONCATENATION and PAD, the first with kernels for int8."""


def tiled(graph: Graph, tilings: Sequence[tuple[Segment, Schedule]]) -> Graph:
    """Return a graph with segments of its operators in row tiles.

    Args:
        graph: of which the segments are.
        tilings: segments that do not overlap, in order, with their schedules.
    """
    build = _Build(graph)
    place = 0
    for segment, schedule in tilings:
        build.operators += graph.operators[place : segment.start]
        build.add(segment, schedule)
        place = segment.end
    operators = (*build.operators, *graph.operators[place:])
    return dataclasses.replace(graph, tensors=tuple(build.tensors), operators=operators)


class _Build:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.tensors = list(graph.tensors)
        self.operators: list[Operator] = []
        self._constants: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._place: dict[int, int] = {}

    def add(self, segment: Segment, schedule: Schedule) -> None:
        """Add the operators of a schedule."""
        ends = (schedule.entries, schedule.exits)
        self._place = {tile.number: tensor for e in ends for tensor, tile in e.items()}
        for step in schedule.steps:
            if step.operator == SLICE:
                self._add_slice(step)
            elif step.operator == CONCATENATE:
                inputs = [self._tensor(tile) for tile in step.inputs]
                self.operators.append(concatenation(inputs, self._tensor(step.output), axis=1))
            elif step.operator == PAD:
                self._add_pad(step)
            else:
                self._add_copy(segment, step)

    def _tensor(self, tile: Tile, width: int | None = None) -> int:
        if tile.number not in self._place:
            like = self._graph.tensors[tile.tensor]
            shape = (1, tile.end - tile.start, width or like.shape[2], like.shape[3])
            self._place[tile.number] = self._new(
                dataclasses.replace(like, shape=shape, no_alias=tile.no_alias)
            )
        return self._place[tile.number]

    def _new(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _constant(self, values: Array) -> int:
        data = np.ascontiguousarray(values, np.int32)
        key = (data.shape, data.tobytes())
        if key not in self._constants:
            self._constants[key] = self._new(constant_tensor(data))
        return self._constants[key]

    def _add_slice(self, step: Step) -> None:
        tile, cut = step.inputs[0], step.output
        output = self._tensor(cut)
        begin = self._constant(np.array([0, cut.start - tile.start, 0, 0]))
        size = self._constant(np.array(self.tensors[output].shape))
        inputs = (self._tensor(tile), begin, size)
        self._emit("SLICE", inputs, output, schema.SliceOptionsT())

    def _add_pad(self, step: Step) -> None:
        above, below, left, right = step.padding
        source = self._tensor(step.inputs[0])
        width = self.tensors[source].shape[2] + left + right
        paddings = self._constant(np.array([[0, 0], [above, below], [left, right], [0, 0]]))
        self._emit(
            "PAD", (source, paddings), self._tensor(step.output, width), schema.PadOptionsT()
        )

    def _emit(self, name: str, inputs: tuple[int, ...], output: int, options: object) -> None:
        self.operators.append(
            Operator(name, False, inputs, (output,), options=options, version=_INT8_VERSION)
        )

    def _add_copy(self, segment: Segment, step: Step) -> None:
        """Add an operator of the segment that runs on tiles."""
        place = step.operator - segment.start
        operator, rule = self._graph.operators[step.operator], segment.rules[place]
        inputs = list(operator.inputs)
        for number, tile in zip(rule.inputs, step.inputs, strict=True):
            inputs[number] = self._tensor(tile)
        options = operator.options
        if step.valid:
            options = copy.copy(options)
            options.padding = schema.Padding.VALID
        shape = self._graph.tensors[operator.outputs[0]].shape
        rows = step.output.end - step.output.start
        if operator.name == "PAD":
            inputs[1] = self._paddings(operator, step)
        elif operator.name in RESIZES:
            inputs[1] = self._constant(np.array([rows, shape[2]]))
        elif operator.name == TRANSPOSED:
            inputs[0] = self._constant(np.array([1, rows, *shape[2:]]))
        self.operators.append(
            dataclasses.replace(
                operator,
                inputs=tuple(inputs),
                outputs=(self._tensor(step.output),),
                options=options,
            )
        )

    def _paddings(self, operator: Operator, step: Step) -> int:
        paddings = np.array(self._graph.values(operator.inputs[1])).reshape(-1, 2)
        tile, output, above = step.inputs[0], step.output, paddings[1, 0]
        paddings[1] = tile.start + above - output.start, output.end - tile.end - above
        return self._constant(paddings)
