"""The blocks of a graph in bands, found from its schedules, without making the graph.

A search plans hundreds of choices of bands, of which most are thrown away. What lies where in a
stretch follows from its schedule, which is made once for each of its bandings: a tile lies at its
rows, in memory that is laid out as its tensor is.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shrink.compact.bands import Banding, Schedule
from shrink.compact.lives import Memory, Rows, lives
from shrink.compact.stretch import Survey
from shrink.compact.views import Block, Cell


class Outline(NamedTuple):
    """What a plan of a graph in bands is made from.

    Attributes:
        blocks: as `views.blocks_of` finds them in the graph; which tensors they hold is left out.
        steps: operators of the graph.
    """

    blocks: list[Block]
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
        blocks: list[Block] = []
        for (banding, schedule), begin in zip(self._stretches, self._begins, strict=True):
            self._add_stretch(banding, schedule, begin)
            blocks += _inner_blocks(schedule, begin)
        blocks += self._outer_blocks()
        return Outline(blocks, self._step[-1])

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

    def _outer_blocks(self) -> Iterator[Block]:
        touched = set(self._read) | set(self._written) | self._inside
        for block in self._survey.blocks:
            if touched.isdisjoint(block.places):
                yield Block({}, [self._renumbered(cell) for cell in block.cells])
            elif len(block.places) == 1:
                (tensor,) = block.places
                if cells := self._cells(tensor, 0):
                    yield Block({}, cells)
            else:
                placed = [self._cells(tensor, place) for tensor, place in block.places.items()]
                if cells := [cell for found in placed for cell in found]:
                    yield Block({}, _united(cells))

    def _renumbered(self, cell: Cell) -> Cell:
        return Cell(cell.start, cell.end, self._step[cell.first], self._step[cell.last])

    def _cells(self, tensor: int, place: int) -> list[Cell]:
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
        memory = Memory(
            described.size_bytes // rows,
            written,
            [*read, *((0, rows, step) for step in uses)],
            self._brief[tensor],
        )
        return _cells_of(memory, place)

    def _runs_inside(self, step: int) -> bool:
        return any(banding.start < step <= banding.end for banding, _ in self._stretches)


def _later(rows: Sequence[Rows], by: int) -> Iterator[Rows]:
    return ((start, end, step + by) for start, end, step in rows)


def _inner_blocks(schedule: Schedule, begin: int) -> Iterator[Block]:
    for memory in schedule.inner():
        cells = _cells_of(memory, 0)
        if cells:
            low = min(cell[0] for cell in cells)
            moved = [Cell(s - low, e - low, first + begin, u + begin) for s, e, first, u in cells]
            yield Block({}, moved)


def _cells_of(memory: Memory, place: int) -> list[Cell]:
    size = memory.row_bytes
    found: list[Cell] = []
    for start, end, first, last in lives(memory.written, memory.read):
        start, end = place + start * size, place + end * size
        if found and found[-1][1:] == (start, first, last):
            start = found.pop()[0]
        found.append(Cell(start, end, first, last))
    for start, end, step in memory.brief:
        found.append(Cell(place + start * size, place + end * size, step, step))
    return found


def _united(cells: Sequence[Cell]) -> list[Cell]:
    """Return cells of which no two hold the same byte in the same step."""
    edges = sorted({edge for cell in cells for edge in cell[:2]})
    found: list[Cell] = []
    for start, end in itertools.pairwise(edges):
        times = sorted(cell[2:] for cell in cells if cell.start <= start < cell.end)
        for first, last in times:
            if found and found[-1].start == start and first <= found[-1].last:
                found[-1] = found[-1]._replace(last=max(last, found[-1].last))
            else:
                found.append(Cell(start, end, first, last))
    return found
