"""The blocks of a graph in bands, found from its schedules, without making the graph.

A search plans hundreds of choices of bands, of which most are thrown away. What lies where in a
stretch follows from its schedule, which is made once for each of its bandings: a tile lies at its
rows, in memory that is laid out as its tensor is.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shrink.base.types import Array
from shrink.compact.bands import Banding, Schedule
from shrink.compact.layout import Layout, as_cells, united_cells
from shrink.compact.lives import Memory, Rows
from shrink.compact.stretch import Survey
from shrink.compact.views import Cell

_STEP = operator.itemgetter(2)


class Outline(NamedTuple):
    """What a plan of a graph in bands is made from.

    Attributes:
        layout: of the blocks that `views.blocks_of` finds in the graph.
        steps: operators of the graph.
    """

    layout: Layout
    steps: int


def has_outline(survey: Survey, stretches: Sequence[tuple[Banding, Schedule]]) -> bool:
    """Whether blocks follow from schedules.

    They do not where operators take work memory, whose place depends on how long tensors of the
    graph in bands are named, nor where tiles would have to begin at bytes that are not aligned.
    """
    return not survey.has_scratch and all(schedule.aligned_rows for _, schedule in stretches)


def outline(survey: Survey, stretches: Sequence[tuple[Banding, Schedule]]) -> Outline:
    """Return the blocks of a graph in bands.

    Args:
        survey: of the graph.
        stretches: that do not overlap, in order, as they run; see `has_outline`.
    """
    return _Outline(survey, stretches).found()


class _Outline:
    def __init__(self, survey: Survey, stretches: Sequence[tuple[Banding, Schedule]]) -> None:
        self._survey = survey
        self._stretches = stretches
        self._inside: set[int] = set()
        self._written: defaultdict[int, list[Rows]] = defaultdict(list)
        self._read: defaultdict[int, list[Rows]] = defaultdict(list)
        self._brief: defaultdict[int, list[Rows]] = defaultdict(list)
        self._begins: list[int] = []
        self._step = self._numbered()

    def found(self) -> Outline:
        """Return the blocks: those inside of stretches, and those of tensors outside."""
        blocks, cells = 0, list[Array]()
        for (banding, schedule), begin in zip(self._stretches, self._begins, strict=True):
            self._add_stretch(banding, schedule, begin)
            inner, count = schedule.inner
            cells.append(inner + np.array((0, 0, begin, begin, blocks)))
            blocks += count
        outer = [
            (*cell, number)
            for number, found in enumerate(self._outer_blocks(), blocks)
            for cell in found
        ]
        blocks = outer[-1][-1] + 1 if outer else blocks
        return Outline(Layout(np.concatenate([*cells, as_cells(outer)]), blocks), self._step[-1])

    def _numbered(self) -> list[int]:
        """Return the step in which each step of the graph as it stands ends."""
        steps, now = [0], 0
        ahead = iter(self._stretches)
        banding, schedule = next(ahead, (None, None))
        for number in range(len(self._survey.graph.operators)):
            if banding is None or schedule is None or number < banding.start:
                now += 1
            elif number == banding.start:
                self._begins.append(now)
                now += len(schedule.steps)
            steps.append(now)
            if banding is not None and number == banding.end - 1:
                banding, schedule = next(ahead, (None, None))
        return steps

    def _add_stretch(self, banding: Banding, schedule: Schedule, begin: int) -> None:
        """Note what a stretch writes and reads of tensors that others read and write."""
        operators = self._survey.graph.operators[banding.start : banding.end]
        self._inside.update(operator.outputs[0] for operator in operators)
        for tensor in schedule.entries:
            self._read[tensor] += _later(schedule.entry(tensor).read, begin)
        for tensor in schedule.finals:
            memory = schedule.exit(tensor)
            self._written[tensor] += _later(memory.written, begin)
            self._read[tensor] += _later(memory.read, begin)
            self._brief[tensor] += _later(memory.brief, begin)

    def _outer_blocks(self) -> Iterator[Sequence[tuple[int, int, int, int]]]:
        """Yield the cells of each block."""
        touched = set(self._read) | set(self._written) | self._inside
        steps = self._step
        for block in self._survey.blocks:
            if touched.isdisjoint(block.places):
                yield [(start, end, steps[f], steps[u]) for start, end, f, u in block.cells]
            elif len(block.places) == 1:
                (tensor,) = block.places
                if cells := self._cells(tensor, 0):
                    yield cells
            else:
                placed = [self._cells(tensor, place) for tensor, place in block.places.items()]
                if cells := [cell for found in placed for cell in found]:
                    yield united_cells([Cell(*cell) for cell in cells])

    def _cells(self, tensor: int, place: int) -> list[tuple[int, int, int, int]]:
        """Return when rows of a tensor are needed; none for one inside of a stretch."""
        graph, written, read = self._survey.graph, self._written[tensor], self._read[tensor]
        if tensor in self._inside and not written:
            return []
        described = graph.tensors[tensor]
        rows = (*described.shape, 1, 1)[1]
        if not written:
            written = [(0, rows, self._step[self._survey.life[tensor][0]])]
        uses = [self._step[use] for use in self._survey.uses[tensor] if not self._runs_inside(use)]
        if tensor in graph.outputs:
            uses.append(self._step[-1])
        reads = sorted([*read, *((0, rows, step) for step in uses)], key=_STEP)
        row_bytes = described.size_bytes // rows
        return Memory(row_bytes, written, reads, self._brief[tensor]).cells(place)

    def _runs_inside(self, step: int) -> bool:
        return any(banding.start < step <= banding.end for banding, _ in self._stretches)


def _later(rows: Sequence[Rows], by: int) -> Iterator[Rows]:
    return ((start, end, step + by) for start, end, step in rows)
