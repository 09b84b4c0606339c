"""A stretch of operators run in bands: some rows of everything, then the next rows.

Between the bands a tensor's rows are either computed again where the next band needs them too, or
kept: then the next band's window is a concatenation of what is kept and what is new. A schedule is
what a stretch becomes, step by step, with the memory that each step needs; `banded.py` makes
operators of it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from shrink.compact.concatenate import MOST_CONCATENATED
from shrink.compact.cost import WHEEL, Cost
from shrink.compact.lives import Memory, Rows, lives
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
        self._macs = 0
        self._born: list[list[Rows]] = []
        self._read: list[list[Rows]] = []
        self._brief: list[tuple[int, int, int, int]] = []
        self._root_bytes: list[int] = []
        self._lasting: list[bool] = []
        self._entry = {t: self._tile(t, 0, stretch.height[t]) for t in stretch.entries}
        for tile in self._entry.values():
            self._born[tile.root].append((tile.start, tile.end, 0))
            self._lasting[tile.root] = tile.tensor in stretch.outlasting
        self._exit_root = {t: self._root(t, lasting=True) for t in stretch.exits}
        self._parts: dict[int, list[Tile]] = {t: [] for t in stretch.exits}
        self._window: dict[int, Tile] = {}
        self._slices: dict[tuple[int, int, int], Tile] = {}
        self._done = self._nothing_done()
        edges = (0, *banding.cuts, stretch.rows)
        rows = list(itertools.pairwise(edges))
        bands = [self._needs(*band) for band in (rows[::-1] if banding.upward else rows)]
        if most_macs is not None and self._least_macs(made for _, made in bands) > most_macs:
            raise Impossible
        self._done = self._nothing_done()
        begins = []
        for number, (needed, made) in enumerate(bands):
            begins.append(len(self.steps))
            later = [needs for needs, _ in bands[number + 1 :]]
            for place, output in enumerate(stretch.outputs):
                if output in made:
                    self._run(place, made[output], needed[output])
                for tensor in stretch.last_read[place]:
                    if tensor in banding.kept:
                        self._keep(tensor, later)
        for tensor in stretch.exits:
            self._finish(tensor)
        live = self._live()
        peak = max(live)
        self.hottest = max(0, bisect_left(begins, live.index(peak)) - 1)
        self.cost = self._cost(peak)

    def _needs(
        self, first: int, last: int
    ) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """Return which rows of each tensor a band needs, and which of them it computes."""
        stretch, height = self._stretch, self._stretch.rows
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
            if output in self._banding.kept:
                low, high = self._fresh(output, low, high)
                if low >= high:
                    continue
                self._advance(output, (low, high))
            made[output] = (low, high)
            window = stretch.rules[place].window(low, high)
            if window is None:
                raise Impossible
            for tensor in stretch.by_rows[place]:
                before = needed.get(tensor, (window.start, window.end))
                needed[tensor] = (min(before[0], window.start), max(before[1], window.end))
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
        stretch = self._stretch
        output = stretch.outputs[place]
        inputs, first, last, padding = self._inputs(place, made)
        rest, whole = self._joint(made, needed)
        joins = output in self._banding.kept and rest[0] < rest[1]
        overhang = last - made[1] if self._banding.upward else made[0] - first
        done = self._fresh(output, *made) == made
        in_exit = output in self._exit_root and not joins and not overhang and done
        new = self._tile(output, first, last, self._exit_root[output] if in_exit else None)
        written = made if joins or in_exit else (first, last)
        self._emit(stretch.start + place, inputs, new, written, valid=padding is not None)
        self._macs += stretch.row_macs[place] * (last - first)
        window = new
        if joins:
            pair = (self._slice(self._window[output], *rest), self._slice(new, *made))
            window = self._tile(output, *whole, new.root)
            self._emit(CONCATENATE, pair[::-1] if self._banding.upward else pair, window, None)
            self._born[new.root].append((*rest, len(self.steps)))
        if output in self._parts:
            self._add_part(new, made, apart=joins)
        self._window[output] = window
        self._advance(output, made)

    def _nothing_done(self) -> dict[int, int]:
        """Return the row of each output behind which, or before which, all are computed."""
        outputs = self._stretch.outputs
        return {t: self._stretch.height[t] if self._banding.upward else 0 for t in outputs}

    def _fresh(self, tensor: int, first: int, last: int) -> tuple[int, int]:
        """Return those rows that no band before computed."""
        done = self._done[tensor]
        return (first, min(last, done)) if self._banding.upward else (max(first, done), last)

    def _advance(self, tensor: int, made: tuple[int, int]) -> None:
        low, high = self._fresh(tensor, *made)
        if low < high:
            self._done[tensor] = low if self._banding.upward else high

    def _joint(
        self, made: tuple[int, int], needed: tuple[int, int]
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the rows of a window that are kept, and all of its rows."""
        if self._banding.upward:
            return (made[1], needed[1]), (made[0], max(made[1], needed[1]))
        return (needed[0], made[0]), (min(needed[0], made[0]), made[1])

    def _keep(self, tensor: int, later: Sequence[Mapping[int, tuple[int, int]]]) -> None:
        """Copy the rows that later bands read again, so that the rest is free."""
        window = self._window.get(tensor)
        again = next((needed[tensor] for needed in later if tensor in needed), None)
        if window is None or again is None:
            return
        done = self._done[tensor]
        start, end = max(again[0], window.start), min(again[1], window.end)
        start, end = (max(start, done), end) if self._banding.upward else (start, min(end, done))
        if start < end and not (window.loose and (start, end) == (window.start, window.end)):
            kept = self._tile(tensor, start, end)._replace(loose=True)
            self._emit(SLICE, (window,), kept, (start, end))
            self._window[tensor] = kept

    def _add_part(self, new: Tile, made: tuple[int, int], apart: bool) -> None:
        """Add what is new of an output of the stretch; apart from a window that it is part of."""
        first, last = self._fresh(new.tensor, *made)
        if first < last:
            exact = (new.start, new.end) == (first, last) and not apart
            root = self._exit_root[new.tensor]
            part = new if exact else self._slice(new, first, last, root)
            parts = self._parts[new.tensor]
            parts.insert(0 if self._banding.upward else len(parts), part)

    def _inputs(
        self, place: int, made: tuple[int, int]
    ) -> tuple[tuple[Tile, ...], int, int, tuple[int, int, int, int] | None]:
        """Return the tiles that an operator reads, and the rows that it computes from them."""
        stretch, rule = self._stretch, self._stretch.rules[place]
        tiles = [self._seen(tensor) for tensor in stretch.by_rows[place]]
        window = rule.window(*made)
        if window is None:
            raise Impossible
        start, end = max(t.start for t in tiles), min(t.end for t in tiles)
        wasted = end - start - (window.end - window.start)
        if wasted <= self._banding.slack and (rows := rule.whole(start, end, *made)):
            return tuple(self._slice(tile, start, end) for tile in tiles), *rows, None
        cut = tuple(self._slice(tile, window.start, window.end) for tile in tiles)
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
        if (tile.start, tile.end) == (start, end) and root is None:
            return tile
        if start < tile.start or end > tile.end:
            raise Impossible
        key = (tile.number, start, end)
        if root is None and key in self._slices:
            return self._slices[key]
        cut = self._tile(tile.tensor, start, end, tile.root if root is None else root)
        self._emit(SLICE, (tile,), cut, None if cut.root == tile.root else (start, end))
        if root is None:
            self._slices[key] = cut
        return cut

    def _finish(self, tensor: int) -> None:
        """Concatenate the parts of an output, ten at a time."""
        parts, root = self._parts[tensor], self._exit_root[tensor]
        while len(parts) > 1:
            joined = []
            for group in _groups(parts):
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
        self._born.append([])
        self._read.append([])
        self._root_bytes.append(self._stretch.row_bytes[tensor] if row_bytes is None else row_bytes)
        self._lasting.append(lasting)
        return len(self._born) - 1

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
        now = len(self.steps)
        for tile in inputs:
            rows = output if operator == SLICE else tile
            self._read[tile.root].append((rows.start, rows.end, now))
        if operator >= 0:
            self._add_scratch(operator, output, now)
        if operator == PAD:
            written = output.start, output.end
        if written is not None:
            self._born[output.root].append((*written, now))
            wrong = ((output.start, written[0]), (written[1], output.end))
            self._brief += [(output.root, *rows, now) for rows in wrong if rows[0] < rows[1]]

    def _add_scratch(self, operator: int, output: Tile, step: int) -> None:
        """Count the work memory of an operator."""
        row_bytes = self._stretch.row_scratch[operator - self._stretch.start]
        if row_bytes:
            root = self._root(output.tensor, row_bytes=row_bytes)
            self._born[root].append((output.start, output.end, step))

    def _live(self) -> list[int]:
        """Return the bytes that are live in each step, as `views.live_bytes` counts them."""
        count = len(self.steps)
        change = [0] * (count + 2)
        for root, births in enumerate(self._born):
            row_bytes, lasting = self._root_bytes[root], self._lasting[root]
            for start, end, first, last in lives(births, self._read[root]):
                size = (end - start) * row_bytes
                change[first] += size
                change[(count if lasting else last) + 1] -= size
        for root, start, end, step in self._brief:
            size = (end - start) * self._root_bytes[root]
            change[step] += size
            change[step + 1] -= size
        return list(itertools.accumulate(change))

    def _cost(self, peak: int) -> Cost:
        """Return what the schedule costs."""
        tail = sum(self._tail(step) for step in self.steps) + WHEEL.tensor * self._constants()
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
        return self._memory(self._entry[tensor].root)

    def exit(self, tensor: int) -> Memory:
        """Return when rows of a tensor that outlasts the stretch are written and read."""
        return self._memory(self._exit_root[tensor])

    def inner(self) -> Iterator[Memory]:
        """Yield the memory of all that is needed inside of the stretch alone."""
        roots = {tile.root for tile in self._entry.values()} | set(self._exit_root.values())
        for root in range(len(self._born)):
            if root not in roots:
                yield self._memory(root)

    def _memory(self, root: int) -> Memory:
        brief = [rows[1:] for rows in self._brief if rows[0] == root]
        return Memory(self._root_bytes[root], self._born[root], self._read[root], brief)

    def _tail(self, step: Step) -> int:
        if step.operator >= 0:
            return self._stretch.tails[step.operator - self._stretch.start]
        return _ADDED_TAILS[step.operator]


_ADDED_TAILS = {
    SLICE: WHEEL.operators["SLICE"] + WHEEL.tensor,
    CONCATENATE: WHEEL.operators["CONCATENATION"] + WHEEL.tensor,
    PAD: WHEEL.operators["PAD"] + 2 * WHEEL.tensor,
}


def _groups(parts: Sequence[Tile]) -> Iterator[Sequence[Tile]]:
    count = -(-len(parts) // MOST_CONCATENATED)
    size = -(-len(parts) // count)
    for start in range(0, len(parts), size):
        yield parts[start : start + size]
