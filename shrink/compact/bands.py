"""A stretch of operators run in bands: some rows of everything, then the next rows.

Between the bands a tensor's rows are either computed again where the next band needs them too, or
kept: then the next band's window is a concatenation of what is kept and what is new. A schedule is
what a stretch becomes, step by step, with the memory that each step needs; `banded.py` makes
operators of it.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from shrink.base.types import Array
from shrink.compact.concatenate import groups_of
from shrink.compact.cost import WHEEL, Cost
from shrink.compact.layout import as_cells
from shrink.compact.lives import Memory, live_bytes
from shrink.compact.stretch import Impossible, Stretch

SLICE, CONCATENATE, PAD = -1, -2, -3


class Banding(NamedTuple):
    """How a stretch of operators runs in bands.

    Attributes:
        start: its first operator.
        end: behind its last operator.
        cuts: rows of the last operator's output at which a band ends, the last row aside.
        kept: tensors whose rows are kept for the next band.
        slack: how many rows too many an operator computes to save a slice.
        upward: whether the last rows come first. What two stretches pass on frees memory at the
            end where the first one began, so that the second one runs the other way.
    """

    start: int
    end: int
    cuts: tuple[int, ...]
    kept: frozenset[int] = frozenset()
    slack: int = 0
    upward: bool = False


class Tile(NamedTuple):
    """Some rows of a tensor.

    Attributes:
        number: unique in a schedule.
        tensor: of which it holds rows; a padded tile is of the tensor that is padded.
        start: its first row.
        end: behind its last row.
        root: of the memory in which it lies.
        loose: whether it is kept for a later band, in memory of its own.
    """

    number: int
    tensor: int
    start: int
    end: int
    root: int
    loose: bool = False


class Step(NamedTuple):
    """An operator of a schedule.

    Attributes:
        operator: of the graph, or SLICE, CONCATENATE, PAD.
        inputs: tiles, those inputs alone that are cut by rows.
        output: what it writes.
        padding: rows above and below, columns left and right, of a PAD.
        valid: whether its padding is VALID in place of SAME.
    """

    operator: int
    inputs: tuple[Tile, ...]
    output: Tile
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    valid: bool = False


class Schedule:
    """A stretch in bands, step by step.

    Args:
        stretch: of operators.
        banding: its bands.
        most_macs: beyond which there need be no schedule; None for no limit.

    Attributes:
        steps: in the order in which they run.
        cost: peak of live bytes while it runs, tail and MACs.
        hottest: the band that holds the peak, the first one that runs being 0.

    Raises:
        Impossible: no windows of rows are right, or more is to be computed than is allowed.
    """

    def __init__(self, stretch: Stretch, banding: Banding, most_macs: int | None = None) -> None:
        self._stretch, self._banding = stretch, banding
        self.steps: list[Step] = []
        self._tiles = 0
        self._tail = 0
        self._memories: list[Memory] = []
        self._entry = {t: self._tile(t, 0, stretch.height[t]) for t in stretch.entries}
        for tensor, tile in self._entry.items():
            self._memories[tile.root].written.append((tile.start, tile.end, 0))
            if tensor in stretch.outlasting:
                self._memories[tile.root] = self._memories[tile.root]._replace(lasts=True)
        self._exit_root = {t: self._root(t, lasting=True) for t in stretch.exits}
        self._parts: dict[int, list[Tile]] = {t: [] for t in stretch.exits}
        self._window: dict[int, Tile] = {}
        self._slices: dict[tuple[int, int, int], Tile] = {}
        self._done = self._nothing_done()
        edges = (0, *banding.cuts, stretch.rows)
        rows = list(itertools.pairwise(edges))
        bands = [self._needs(*band) for band in (rows[::-1] if banding.upward else rows)]
        self._macs = self._least_macs(made for _, made in bands)
        if most_macs is not None and self._macs > most_macs:
            raise Impossible
        self._done = self._nothing_done()
        begins = []
        later = _later_needs([needed for needed, _ in bands])
        for (needed, made), again in zip(bands, later, strict=True):
            begins.append(len(self.steps))
            for place, output in enumerate(stretch.outputs):
                if output in made:
                    self._run(place, made[output], needed[output])
                for tensor in stretch.last_read[place]:
                    if tensor in banding.kept and tensor in again:
                        self._keep(tensor, again[tensor])
        for tensor in stretch.exits:
            self._finish(tensor)
        live = live_bytes(self._memories, len(self.steps))
        peak = max(live)
        self.hottest = max(0, bisect_left(begins, live.index(peak)) - 1)
        self.cost = self._cost(peak)

    def _needs(
        self, first: int, last: int
    ) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """Return which rows of each tensor a band needs, and which of them it computes."""
        stretch, height, kept = self._stretch, self._stretch.rows, self._banding.kept
        needed: dict[int, tuple[int, int]] = {}
        made: dict[int, tuple[int, int]] = {}
        for tensor in stretch.exits:
            rows = stretch.height[tensor]
            low, high = -(-first * rows // height), -(-last * rows // height)
            if high > low:
                needed[tensor] = (low, high)
        for place in reversed(range(len(stretch.outputs))):
            output = stretch.outputs[place]
            if output not in needed:
                continue
            low, high = needed[output]
            if output in kept:
                low, high = self._fresh(output, low, high)
                if low >= high:
                    continue
                self._done[output] = low if self._banding.upward else high
            made[output] = (low, high)
            window = stretch.rules[place].window(low, high)
            if window is None:
                raise Impossible
            start, end, _, _, _ = window
            for tensor in stretch.by_rows[place]:
                if tensor in needed:
                    low, high = needed[tensor]
                    needed[tensor] = (min(low, start), max(high, end))
                else:
                    needed[tensor] = (start, end)
        return needed, made

    def _least_macs(self, bands: Iterable[Mapping[int, tuple[int, int]]]) -> int:
        """Return the multiply-accumulates of what bands make, without rows that are wrong."""
        each = dict(zip(self._stretch.outputs, self._stretch.row_macs, strict=True))
        return sum(
            (last - first) * each[tensor]
            for made in bands
            for tensor, (first, last) in made.items()
        )

    def _run(self, place: int, made: tuple[int, int], needed: tuple[int, int]) -> None:
        """Compute rows of an operator's output, and set what the band's readers see of it."""
        stretch, upward = self._stretch, self._banding.upward
        output = stretch.outputs[place]
        inputs, first, last, padding = self._inputs(place, made)
        fresh = self._fresh(output, *made)
        in_exit = joins = False
        rest, whole = made, made
        if output in self._banding.kept:
            rest, whole = self._joint(made, needed)
            joins = rest[0] < rest[1]
        if output in self._exit_root and not joins and fresh == made:
            in_exit = (last == made[1]) if upward else (made[0] == first)
        new = self._tile(output, first, last, self._exit_root[output] if in_exit else None)
        written = made if joins or in_exit else (first, last)
        self._emit(stretch.start + place, inputs, new, written, valid=padding is not None)
        self._macs += stretch.row_macs[place] * (made[0] - first + last - made[1])
        window = new
        if joins:
            pair = (self._slice(self._window[output], *rest), self._slice(new, *made))
            window = self._tile(output, *whole, new.root)
            self._emit(CONCATENATE, pair[::-1] if upward else pair, window, None)
            self._memories[new.root].written.append((*rest, len(self.steps)))
        if fresh[0] < fresh[1]:
            if output in self._parts:
                self._add_part(new, fresh, apart=joins)
            self._done[output] = fresh[0] if upward else fresh[1]
        self._window[output] = window

    def _nothing_done(self) -> dict[int, int]:
        """Return the row of each output behind which, or before which, all are computed."""
        outputs = self._stretch.outputs
        return {t: self._stretch.height[t] if self._banding.upward else 0 for t in outputs}

    def _fresh(self, tensor: int, first: int, last: int) -> tuple[int, int]:
        """Return those rows that no band before computed."""
        done = self._done[tensor]
        return (first, min(last, done)) if self._banding.upward else (max(first, done), last)

    def _joint(
        self, made: tuple[int, int], needed: tuple[int, int]
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the rows of a window that are kept, and all of its rows."""
        if self._banding.upward:
            return (made[1], needed[1]), (made[0], max(made[1], needed[1]))
        return (needed[0], made[0]), (min(needed[0], made[0]), made[1])

    def _keep(self, tensor: int, again: tuple[int, int]) -> None:
        """Copy the rows that the next band that reads any reads again, so that the rest is free."""
        window = self._window.get(tensor)
        if window is None:
            return
        done = self._done[tensor]
        start, end = max(again[0], window.start), min(again[1], window.end)
        start, end = (max(start, done), end) if self._banding.upward else (start, min(end, done))
        if start < end and not (window.loose and (start, end) == (window.start, window.end)):
            kept = Tile(self._tiles, tensor, start, end, self._root(tensor), loose=True)
            self._tiles += 1
            self._emit(SLICE, (window,), kept, (start, end))
            self._window[tensor] = kept

    def _add_part(self, new: Tile, fresh: tuple[int, int], apart: bool) -> None:
        """Add what is new of an output of the stretch; apart from a window that it is part of."""
        exact = (new.start, new.end) == fresh and not apart
        part = new if exact else self._slice(new, *fresh, self._exit_root[new.tensor])
        parts = self._parts[new.tensor]
        parts.insert(0 if self._banding.upward else len(parts), part)

    def _inputs(
        self, place: int, made: tuple[int, int]
    ) -> tuple[tuple[Tile, ...], int, int, tuple[int, int, int, int] | None]:
        """Return the tiles that an operator reads, and the rows that it computes from them."""
        stretch, rule = self._stretch, self._stretch.rules[place]
        window = rule.window(*made)
        if window is None:
            raise Impossible
        tiles = [self._seen(tensor) for tensor in stretch.by_rows[place]]
        _, _, start, end, _, _ = tiles[0]
        for tile in tiles[1:]:
            start, end = max(start, tile.start), min(end, tile.end)
        wasted = end - start - (window.end - window.start)
        if wasted <= self._banding.slack and (rows := rule.whole(start, end, *made)):
            return tuple([self._slice(tile, start, end) for tile in tiles]), *rows, None
        cut = tuple([self._slice(tile, window.start, window.end) for tile in tiles])
        if window.padding is None:
            return cut, window.first, window.last, None
        return (self._pad(cut[0], window.padding),), window.first, window.last, window.padding

    def _seen(self, tensor: int) -> Tile:
        return self._entry[tensor] if tensor in self._entry else self._window[tensor]

    def _pad(self, tile: Tile, padding: tuple[int, int, int, int]) -> Tile:
        above, below, left, right = padding
        shape = self._stretch.graph.tensors[tile.tensor].shape
        row_bytes = self._stretch.row_bytes[tile.tensor] // shape[2] * (shape[2] + left + right)
        root = self._root(tile.tensor, row_bytes=row_bytes)
        padded = Tile(self._tiles, tile.tensor, tile.start - above, tile.end + below, root)
        self._tiles += 1
        self._emit(PAD, (tile,), padded, None, padding)
        return padded

    def _slice(self, tile: Tile, start: int, end: int, root: int | None = None) -> Tile:
        """Return rows of a tile, itself where these are all; where a root is given, copied there.

        Returns:
            The same tile again where it was cut the same way before.
        """
        number, tensor, low, high, lies_in, _ = tile
        if low == start and high == end and root is None:
            return tile
        if start < low or end > high:
            raise Impossible
        key = (number, start, end)
        if root is None and key in self._slices:
            return self._slices[key]
        cut = self._tile(tensor, start, end, lies_in if root is None else root)
        self._emit(SLICE, (tile,), cut, None if cut.root == lies_in else (start, end))
        if root is None:
            self._slices[key] = cut
        return cut

    def _finish(self, tensor: int) -> None:
        """Concatenate the parts of an output, ten at a time."""
        parts, root = self._parts[tensor], self._exit_root[tensor]
        while len(parts) > 1:
            joined = []
            for group in groups_of(parts):
                tile = self._tile(tensor, group[0].start, group[-1].end, root)
                self._emit(CONCATENATE, tuple(group), tile, None)
                joined.append(tile)
            parts = joined
        self._parts[tensor] = parts

    @property
    def finals(self) -> Mapping[int, Tile]:
        """The tile that is an output of the stretch, by tensor."""
        return {tensor: parts[0] for tensor, parts in self._parts.items()}

    @property
    def entries(self) -> Mapping[int, Tile]:
        """The tile that is a tensor from before the stretch, by tensor."""
        return self._entry

    def _root(self, tensor: int, lasting: bool = False, row_bytes: int | None = None) -> int:
        size = self._stretch.row_bytes[tensor] if row_bytes is None else row_bytes
        self._memories.append(Memory(size, [], [], [], lasting))
        return len(self._memories) - 1

    def _tile(self, tensor: int, start: int, end: int, root: int | None = None) -> Tile:
        self._tiles += 1
        own = self._root(tensor) if root is None else root
        return Tile(self._tiles - 1, tensor, start, end, own)

    def _emit(
        self,
        operator: int,
        inputs: tuple[Tile, ...],
        output: Tile,
        written: tuple[int, int] | None,
        padding: tuple[int, int, int, int] = (0, 0, 0, 0),
        valid: bool = False,
    ) -> None:
        """Add a step.

        Args:
            operator: see `Step`.
            inputs: see `Step`.
            output: see `Step`.
            written: rows of it that are right; the others are needed in this step alone. None for
                views, which write nothing, and for all rows of a PAD.
            padding: see `Step`.
            valid: see `Step`.
        """
        self.steps.append(Step(operator, inputs, output, padding, valid))
        now, memories = len(self.steps), self._memories
        _, _, start, end, root, _ = output
        if operator == SLICE:
            memories[inputs[0].root].read.append((start, end, now))
        else:
            for _, _, low, high, lies_in, _ in inputs:
                memories[lies_in].read.append((low, high, now))
        if operator >= 0:
            place = operator - self._stretch.start
            self._tail += self._stretch.tails[place]
            if self._stretch.row_scratch[place]:
                self._add_scratch(place, output, now)
        else:
            self._tail += _ADDED_TAILS[operator]
        if operator == PAD:
            written = start, end
        if written is not None:
            low, high = written
            memories[root].written.append((low, high, now))
            if start < low:
                memories[root].brief.append((start, low, now))
            if high < end:
                memories[root].brief.append((high, end, now))

    def _add_scratch(self, place: int, output: Tile, step: int) -> None:
        """Count the work memory of an operator."""
        root = self._root(output.tensor, row_bytes=self._stretch.row_scratch[place])
        self._memories[root].written.append((output.start, output.end, step))

    def _cost(self, peak: int) -> Cost:
        """Return what the schedule costs."""
        tail = self._tail + WHEEL.tensor * self._constants()
        return Cost(peak + self._stretch.bypass_bytes, tail, self._macs, len(self.steps))

    def _constants(self) -> int:
        """Return how many different beginnings, beside 0, and sizes slices name."""
        slices = [(step.inputs[0], step.output) for step in self.steps if step.operator == SLICE]
        shapes = self._stretch.graph.tensors
        begins = {cut.start - tile.start for tile, cut in slices}
        sizes = {(cut.end - cut.start, *shapes[cut.tensor].shape[2:]) for _, cut in slices}
        return len(begins - {0}) + len(sizes)

    @property
    def aligned_rows(self) -> bool:
        """Whether every row may begin a tensor, so that all tiles lie where their rows do."""
        return self._stretch.aligned_rows

    def entry(self, tensor: int) -> Memory:
        """Return when rows of a tensor from before the stretch are read."""
        return self._memories[self._entry[tensor].root]

    def exit(self, tensor: int) -> Memory:
        """Return when rows of a tensor that outlasts the stretch are written and read."""
        return self._memories[self._exit_root[tensor]]

    @functools.cached_property
    def inner(self) -> tuple[Array, int]:
        """The cells of all that is needed inside of the stretch alone, and of how many blocks.

        As in `layout.Layout`; each block begins at 0.
        """
        outer = {tile.root for tile in self._entry.values()} | set(self._exit_root.values())
        found: list[tuple[int, int, int, int, int]] = []
        blocks = 0
        for root, memory in enumerate(self._memories):
            if root not in outer and (cells := memory.cells(0)):
                low = min(cell[0] for cell in cells)
                found += [(s - low, e - low, first, last, blocks) for s, e, first, last in cells]
                blocks += 1
        return as_cells(found), blocks


_ADDED_TAILS = {
    SLICE: WHEEL.operators["SLICE"] + WHEEL.tensor,
    CONCATENATE: WHEEL.operators["CONCATENATION"] + WHEEL.tensor,
    PAD: WHEEL.operators["PAD"] + 2 * WHEEL.tensor,
}


def _later_needs(
    bands: Sequence[Mapping[int, tuple[int, int]]],
) -> Sequence[Mapping[int, tuple[int, int]]]:
    """Return, for each band, the rows that the next one that reads a tensor needs of it."""
    later: list[Mapping[int, tuple[int, int]]] = [{}]
    for needed in bands[:0:-1]:
        later.append({**later[-1], **needed})
    return later[::-1]
