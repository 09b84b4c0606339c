"""A segment of operators run in row tiles: some rows of everything, then the next rows.

Between two tiles a tensor's rows are either computed again where the next tile needs them too, or
kept: then the next tile's window is a concatenation of kept and new rows. A schedule lists the
operators that the segment becomes, with the memory that each needs; `tiling.py` adds them to a
graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from shrink.compact.concatenate import groups_of
from shrink.compact.cost import OPERATOR_BYTES, TENSOR_BYTES, Cost
from shrink.compact.segment import ImpossibleError, Segment
from shrink.tflite.memory import Cell, live_bytes

SLICE, CONCATENATE = -1, -2
Rows: TypeAlias = tuple[int, int]
"""Rows [start, end) of a tensor."""


class Tiling(NamedTuple):
    """How a segment of operators runs in row tiles.

    Attributes:
        start: its first operator.
        end: behind its last operator.
        cuts: rows of the last operator's output at which a tile ends, the last row aside.
        kept: tensors whose rows are kept for the next tile.
        upward: whether the last rows come first. A segment frees memory at the end at which it
            began to read, so that the next segment fits better when it runs the other way.
    """

    start: int
    end: int
    cuts: tuple[int, ...]
    kept: frozenset[int] = frozenset()
    upward: bool = False


def even_cuts(rows: int, count: int) -> tuple[int, ...]:
    """Return the rows at which so many tiles of about as many rows end, the last aside."""
    return tuple(sorted({round(rows * i / count) for i in range(1, count)} - {0, rows}))


class Tile(NamedTuple):
    """Some rows of a tensor.

    Attributes:
        number: unique in a schedule.
        tensor: of which it holds rows.
        start: its first row.
        end: behind its last row.
        memory: the number of the memory in which it lies.
        no_alias: whether it is kept for a later tile, in memory of its own.
    """

    number: int
    tensor: int
    start: int
    end: int
    memory: int
    no_alias: bool = False


class Step(NamedTuple):
    """An operator of a schedule.

    Attributes:
        operator: of the graph, or SLICE, CONCATENATE.
        inputs: tiles, those inputs alone that are cut by rows.
        output: what it writes.
    """

    operator: int
    inputs: tuple[Tile, ...]
    output: Tile


class _Memory(NamedTuple):
    """Memory laid out as the rows of a tensor; rows with a step are (start, end, step).

    Attributes:
        row_bytes: of each.
        written: rows, and the step that writes them.
        read: rows, and a step that reads them, the first step first.
        scratch_rows: rows that are wrong, and the step that writes them; nothing reads these.
        lasts: whether something after the last step reads it.
    """

    row_bytes: int
    written: list[tuple[int, int, int]]
    read: list[tuple[int, int, int]]
    scratch_rows: list[tuple[int, int, int]]
    lasts: bool = False

    def cells(self, steps: int) -> Iterator[Cell]:
        size = self.row_bytes
        for start, end, first, last in rows_alive(self.written, self.read):
            yield start * size, end * size, first, steps if self.lasts else last
        for start, end, step in self.scratch_rows:
            yield start * size, end * size, step, step


def rows_alive(
    written: Sequence[tuple[int, int, int]], read: Sequence[tuple[int, int, int]]
) -> list[tuple[int, int, int, int]]:
    """Return rows [start, end) with the first and the last step in which they are needed.

    Args:
        written: rows, and the step that writes them.
        read: rows, and a step that reads them, the first step first.
    """
    found: list[tuple[int, int, int, int]] = []
    latest = read[::-1]
    for start, end, born in written:
        left = [(start, end)] if start < end else []
        for low, high, step in latest:
            if step <= born or not left:
                break
            if high <= start or end <= low:
                continue
            rest = []
            for first, last in left:
                inside = max(first, low), min(last, high)
                if inside[0] >= inside[1]:
                    rest.append((first, last))
                    continue
                found.append((*inside, born, step))
                if first < low:
                    rest.append((first, low))
                if high < last:
                    rest.append((high, last))
            left = rest
        found += [(first, last, born, born) for first, last in left]
    return found


class Schedule:
    """A segment in row tiles, step by step.

    Args:
        segment: of operators.
        tiling: its tiles.
        most_macs: beyond which there need be no schedule; None for no limit.

    Attributes:
        steps: in the order in which they run.
        cost: peak of live bytes while it runs, tail and MACs.
        entries: the tile that is a tensor from before the segment, by tensor.

    Raises:
        ImpossibleError: more is computed than is allowed.
    """

    def __init__(self, segment: Segment, tiling: Tiling, most_macs: int | None = None) -> None:
        self._segment, self._tiling = segment, tiling
        self.steps: list[Step] = []
        self._tiles = self._tail = 0
        self._memories: list[_Memory] = []
        self.entries = {t: self._tile(t, 0, segment.height[t]) for t in segment.entries}
        for tensor, tile in self.entries.items():
            self._memories[tile.memory].written.append((tile.start, tile.end, 0))
            if tensor in segment.lasting:
                self._memories[tile.memory] = self._memories[tile.memory]._replace(lasts=True)
        self._exit_memory = {t: self._memory(t, lasts=True) for t in segment.exits}
        self._parts: dict[int, list[Tile]] = {t: [] for t in segment.exits}
        self._window: dict[int, Tile] = {}
        self._slices: dict[tuple[int, int, int], Tile] = {}
        rows, computed = list(itertools.pairwise((0, *tiling.cuts, segment.rows))), self._edges()
        tiles = [self._needs(*each, computed) for each in (rows[::-1] if tiling.upward else rows)]
        self._macs = self._least_macs(made for _, made in tiles)
        if most_macs is not None and self._macs > most_macs:
            raise ImpossibleError
        self._computed = self._edges()
        later = _needed_later([needed for needed, _ in tiles])
        for (needed, made), again in zip(tiles, later, strict=True):
            for number, output in enumerate(segment.outputs):
                if output in made:
                    self._run(number, made[output], needed[output])
                for tensor in segment.last_read[number]:
                    if tensor in tiling.kept and tensor in again:
                        self._keep(tensor, again[tensor])
        for tensor in segment.exits:
            self._finish(tensor)
        cells = (cell for memory in self._memories for cell in memory.cells(len(self.steps)))
        peak = max(live_bytes(cells, len(self.steps)))
        tail = self._tail + TENSOR_BYTES * self._constants()
        self.cost = Cost(peak + segment.bypass_bytes, tail, self._macs)

    @property
    def exits(self) -> Mapping[int, Tile]:
        """The tile that is an output of the segment, by tensor."""
        return {tensor: parts[0] for tensor, parts in self._parts.items()}

    def _needs(
        self, first: int, last: int, computed: dict[int, int]
    ) -> tuple[dict[int, Rows], dict[int, Rows]]:
        """Return which rows of each tensor a tile needs, and which of them it computes.

        Args:
            first, last: rows of the segment's output.
            computed: see `_edges`; of kept tensors it moves on behind this tile.
        """
        segment, height, kept = self._segment, self._segment.rows, self._tiling.kept
        needed: dict[int, Rows] = {}
        made: dict[int, Rows] = {}
        for tensor in segment.exits:
            rows = segment.height[tensor]
            low, high = -(-first * rows // height), -(-last * rows // height)
            if high > low:
                needed[tensor] = (low, high)
        for number in reversed(range(len(segment.outputs))):
            output = segment.outputs[number]
            if output not in needed:
                continue
            low, high = needed[output]
            if output in kept:
                low, high = self._fresh(low, high, computed[output])
                if low >= high:
                    continue
                computed[output] = low if self._tiling.upward else high
            made[output] = (low, high)
            start, end, _, _ = segment.rules[number].window(low, high)
            for tensor in segment.by_rows[number]:
                if tensor in needed:
                    low, high = needed[tensor]
                    needed[tensor] = (min(low, start), max(high, end))
                else:
                    needed[tensor] = (start, end)
        return needed, made

    def _least_macs(self, tiles: Iterable[Mapping[int, Rows]]) -> int:
        """Return the multiply-accumulates of what tiles make, without rows that are wrong."""
        each = dict(zip(self._segment.outputs, self._segment.row_macs, strict=True))
        return sum(
            (last - first) * each[tensor]
            for made in tiles
            for tensor, (first, last) in made.items()
        )

    def _run(self, number: int, made: Rows, needed: Rows) -> None:
        """Compute rows of an operator's output, and set the window that the tile's readers use."""
        segment, upward = self._segment, self._tiling.upward
        output = segment.outputs[number]
        inputs, first, last = self._inputs(number, made)
        fresh = self._fresh(*made, self._computed[output])
        in_exit = joins = False
        rest, whole = made, made
        if output in self._tiling.kept:
            if upward:
                rest, whole = (made[1], needed[1]), (made[0], max(made[1], needed[1]))
            else:
                rest, whole = (needed[0], made[0]), (min(needed[0], made[0]), made[1])
            joins = rest[0] < rest[1]
        if output in self._exit_memory and not joins and fresh == made:
            in_exit = (last == made[1]) if upward else (made[0] == first)
        new = self._tile(output, first, last, self._exit_memory[output] if in_exit else None)
        written = made if joins or in_exit else (first, last)
        self._emit(segment.start + number, inputs, new, written)
        self._macs += segment.row_macs[number] * (made[0] - first + last - made[1])
        window = new
        if joins:
            pair = (self._slice(self._window[output], *rest), self._slice(new, *made))
            window = self._tile(output, *whole, new.memory)
            self._emit(CONCATENATE, pair[::-1] if upward else pair, window, None)
            self._memories[new.memory].written.append((*rest, len(self.steps)))
        if fresh[0] < fresh[1]:
            if output in self._parts:
                self._add_part(new, fresh, apart=joins)
            self._computed[output] = fresh[0] if upward else fresh[1]
        self._window[output] = window

    def _edges(self) -> dict[int, int]:
        """Return the row of each output up to which, or from which on, rows are computed: none."""
        segment = self._segment
        return {t: segment.height[t] if self._tiling.upward else 0 for t in segment.outputs}

    def _fresh(self, first: int, last: int, computed: int) -> Rows:
        """Return those rows that no tile before computed."""
        return (first, min(last, computed)) if self._tiling.upward else (max(first, computed), last)

    def _keep(self, tensor: int, again: Rows) -> None:
        """Copy the rows that the next tile that reads any reads again, so that the rest is free."""
        window = self._window.get(tensor)
        if window is None:
            return
        start, end = max(again[0], window.start), min(again[1], window.end)
        computed = self._computed[tensor]
        if self._tiling.upward:
            start = max(start, computed)
        else:
            end = min(end, computed)
        if start < end and not (window.no_alias and (start, end) == (window.start, window.end)):
            kept = self._tile(tensor, start, end)._replace(no_alias=True)
            self._emit(SLICE, (window,), kept, (start, end))
            self._window[tensor] = kept

    def _add_part(self, new: Tile, fresh: Rows, apart: bool) -> None:
        """Add the new rows of an output of the segment; apart from a window that they are in."""
        exact = (new.start, new.end) == fresh and not apart
        part = new if exact else self._slice(new, *fresh, self._exit_memory[new.tensor])
        parts = self._parts[new.tensor]
        parts.insert(0 if self._tiling.upward else len(parts), part)

    def _inputs(self, number: int, made: Rows) -> tuple[tuple[Tile, ...], int, int]:
        """Return the tiles that an operator reads, and the rows that it computes from them."""
        segment = self._segment
        window = segment.rules[number].window(*made)
        tiles = [self.entries.get(t) or self._window[t] for t in segment.by_rows[number]]
        cut = tuple([self._slice(tile, window.start, window.end) for tile in tiles])
        return cut, window.first, window.last

    def _slice(self, tile: Tile, start: int, end: int, memory: int | None = None) -> Tile:
        """Return rows of a tile, itself where these are all; copied where memory is given.

        Returns:
            The same tile again where it was cut the same way before.
        """
        number, tensor, low, high, lies_in, _ = tile
        if low == start and high == end and memory is None:
            return tile
        if start < low or end > high:
            raise ImpossibleError
        key = (number, start, end)
        if memory is None and key in self._slices:
            return self._slices[key]
        cut = self._tile(tensor, start, end, lies_in if memory is None else memory)
        self._emit(SLICE, (tile,), cut, None if cut.memory == lies_in else (start, end))
        if memory is None:
            self._slices[key] = cut
        return cut

    def _finish(self, tensor: int) -> None:
        """Concatenate the parts of an output, ten at a time."""
        parts, memory = self._parts[tensor], self._exit_memory[tensor]
        while len(parts) > 1:
            joined = []
            for group in groups_of(parts):
                tile = self._tile(tensor, group[0].start, group[-1].end, memory)
                self._emit(CONCATENATE, tuple(group), tile, None)
                joined.append(tile)
            parts = joined
        self._parts[tensor] = parts

    def _memory(self, tensor: int, lasts: bool = False, row_bytes: int | None = None) -> int:
        size = self._segment.row_bytes[tensor] if row_bytes is None else row_bytes
        self._memories.append(_Memory(size, [], [], [], lasts))
        return len(self._memories) - 1

    def _tile(self, tensor: int, start: int, end: int, memory: int | None = None) -> Tile:
        self._tiles += 1
        own = self._memory(tensor) if memory is None else memory
        return Tile(self._tiles - 1, tensor, start, end, own)

    def _emit(
        self, operator: int, inputs: tuple[Tile, ...], output: Tile, written: Rows | None
    ) -> None:
        """Add a step.

        Args:
            operator, inputs, output: see `Step`.
            written: rows of the output that are right; the others are needed in this step alone.
                None for a view, which writes nothing.
        """
        self.steps.append(Step(operator, inputs, output))
        now, memories = len(self.steps), self._memories
        _, _, start, end, memory, _ = output
        if operator == SLICE:
            memories[inputs[0].memory].read.append((start, end, now))
        else:
            for _, _, low, high, lies_in, _ in inputs:
                memories[lies_in].read.append((low, high, now))
        if operator >= 0:
            number = operator - self._segment.start
            self._tail += self._segment.tails[number]
            if self._segment.row_scratch[number]:
                scratch = self._memory(output.tensor, row_bytes=self._segment.row_scratch[number])
                self._memories[scratch].written.append((start, end, now))
        else:
            self._tail += _ADDED_TAILS[operator]
        if written is not None:
            low, high = written
            memories[memory].written.append((low, high, now))
            if start < low:
                memories[memory].scratch_rows.append((start, low, now))
            if high < end:
                memories[memory].scratch_rows.append((high, end, now))

    def _constants(self) -> int:
        """Return how many different beginnings, beside 0, and sizes slices name."""
        slices = [(step.inputs[0], step.output) for step in self.steps if step.operator == SLICE]
        shapes = self._segment.graph.tensors
        begins = {cut.start - tile.start for tile, cut in slices}
        sizes = {(cut.end - cut.start, *shapes[cut.tensor].shape[2:]) for _, cut in slices}
        return len(begins - {0}) + len(sizes)


_ADDED_TAILS = {
    SLICE: OPERATOR_BYTES["SLICE"] + TENSOR_BYTES,
    CONCATENATE: OPERATOR_BYTES["CONCATENATION"] + TENSOR_BYTES,
}


def _needed_later(tiles: Sequence[Mapping[int, Rows]]) -> Sequence[Mapping[int, Rows]]:
    """Return, for each tile, the rows that the next one that reads a tensor needs of it."""
    later: list[Mapping[int, Rows]] = [{}]
    for needed in tiles[:0:-1]:
        later.append({**later[-1], **needed})
    return later[::-1]
