"""A graph with stretches of its operators run in bands."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.bands import (
    CONCATENATE,
    PAD,
    SLICE,
    Banding,
    Schedule,
    Step,
    Tile,
)
from shrink.compact.concatenate import concatenation
from shrink.compact.graph import Graph, Operator, OperatorCode, Options, Tensor
from shrink.compact.rows import RESIZES, Padded, Transposed
from shrink.compact.stretch import Stretch, Survey

_BuiltinOperator, _Options = schema.BuiltinOperator, schema.BuiltinOptions
_INT8_VERSION = 2


def in_bands(survey: Survey, bandings: Sequence[Banding]) -> Graph:
    """Return a graph with stretches of its operators in bands.

    Args:
        survey: of the graph.
        bandings: of stretches that do not overlap.
    """
    graph = survey.graph
    build = _Build(graph)
    place = 0
    for banding in sorted(bandings):
        build.operators += graph.operators[place : banding.start]
        stretch = Stretch(survey, banding.start, banding.end)
        build.add(stretch, Schedule(stretch, banding))
        place = banding.end
    build.operators += graph.operators[place:]
    return dataclasses.replace(
        graph, tensors=tuple(build.tensors), operators=tuple(build.operators)
    )


class _Build:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.tensors = list(graph.tensors)
        self.operators: list[Operator] = []
        self._constants: dict[tuple[tuple[int, ...], bytes], int] = {}

    def add(self, stretch: Stretch, schedule: Schedule) -> None:
        """Add the operators of a schedule."""
        self._place: dict[int, int] = {}
        for tensors in (schedule.entries, schedule.finals):
            self._place.update({tile.number: tensor for tensor, tile in tensors.items()})
        self._widths: dict[int, int] = {}
        for step in schedule.steps:
            if step.operator == SLICE:
                self._add_slice(step)
            elif step.operator == CONCATENATE:
                self._add_concatenation(step)
            elif step.operator == PAD:
                self._add_pad(step)
            else:
                self._add_copy(stretch, step)

    def _tensor(self, tile: Tile, width: int | None = None) -> int:
        if tile.number not in self._place:
            like = self._graph.tensors[tile.tensor]
            shape = (1, tile.end - tile.start, width or like.shape[2], like.shape[3])
            tensor = dataclasses.replace(like, shape=shape, loose=tile.loose)
            self._place[tile.number] = self._new(tensor)
        return self._place[tile.number]

    def _new(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _constant(self, values: Array) -> int:
        data = np.ascontiguousarray(values, "<i4")
        key = (data.shape, data.tobytes())
        if key not in self._constants:
            added = Tensor(data.shape, schema.TensorType.INT32, None, data, constant=True)
            self._constants[key] = self._new(added)
        return self._constants[key]

    def _emit(
        self, builtin: int, inputs: Sequence[int], output: int, options: Options, kind: int
    ) -> None:
        code = OperatorCode(builtin, _INT8_VERSION)
        self.operators.append(Operator(code, tuple(inputs), (output,), options, kind))

    def _add_slice(self, step: Step) -> None:
        tile, cut = step.inputs[0], step.output
        output = self._tensor(cut)
        begin = self._constant(np.array([0, cut.start - tile.start, 0, 0]))
        size = self._constant(np.array(self.tensors[output].shape))
        inputs = (self._tensor(tile), begin, size)
        options = schema.SliceOptionsT()
        self._emit(_BuiltinOperator.SLICE, inputs, output, options, _Options.SliceOptions)

    def _add_concatenation(self, step: Step) -> None:
        inputs = [self._tensor(tile) for tile in step.inputs]
        self.operators.append(concatenation(inputs, self._tensor(step.output), axis=1))

    def _add_pad(self, step: Step) -> None:
        above, below, left, right = step.padding
        source = self._tensor(step.inputs[0])
        width = self.tensors[source].shape[2] + left + right
        paddings = self._constant(np.array([[0, 0], [above, below], [left, right], [0, 0]]))
        output = self._tensor(step.output, width)
        inputs = (source, paddings)
        self._emit(_BuiltinOperator.PAD, inputs, output, schema.PadOptionsT(), _Options.PadOptions)

    def _add_copy(self, stretch: Stretch, step: Step) -> None:
        """Add an operator of the stretch that runs on tiles."""
        place = step.operator - stretch.start
        operator, rule = self._graph.operators[step.operator], stretch.rules[place]
        inputs = list(operator.inputs)
        for number, tile in zip(rule.inputs, step.inputs, strict=True):
            inputs[number] = self._tensor(tile)
        options = operator.options
        if step.valid:
            options = copy.copy(options)
            options.padding = schema.Padding.VALID
        if isinstance(rule, Padded):
            inputs[1] = self._paddings(operator, rule, step)
        elif operator.code.builtin in RESIZES:
            rows = step.output.end - step.output.start
            width = self._graph.tensors[operator.outputs[0]].shape[2]
            inputs[1] = self._constant(np.array([rows, width]))
        elif isinstance(rule, Transposed):
            shape = self._graph.tensors[operator.outputs[0]].shape
            rows = step.output.end - step.output.start
            inputs[0] = self._constant(np.array([1, rows, *shape[2:]]))
        output = self._tensor(step.output)
        added = dataclasses.replace(
            operator, inputs=tuple(inputs), outputs=(output,), options=options
        )
        self.operators.append(added)

    def _paddings(self, operator: Operator, rule: Padded, step: Step) -> int:
        paddings = np.array(self._graph.values(operator.inputs[1])).reshape(-1, 2)
        tile, output = step.inputs[0], step.output
        above = tile.start + rule.above - output.start
        paddings[1] = above, output.end - tile.end - rule.above
        return self._constant(paddings)
