"""Which segments of operators run in which row tiles.

First, segments between operators where few tensors are alive are tried in some numbers of tiles,
which keep all rows or none, the shortest first; then the path from the first operator to the last
one is found, over single operators and tiled segments, whose peak of live bytes is lowest (a
shortest-path search with several labels at each operator). It is changed in one thing at a time:
first as long as the bound gets lower, then as long as the planned arena gets smaller. Limits count
schedules and plans, not seconds, so that every machine finds the same tiles.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from shrink.compact.graph import Graph
from shrink.compact.plan import Planned
from shrink.compact.schedule import Schedule, Tiling, even_cuts
from shrink.compact.segment import GraphInfo, ImpossibleError, Segment
from shrink.compact.tiling import tiled

_TILES = (2, 3, 4, 6, 8, 12)
"""Numbers of tiles that segments are first tried in; changes find those between and beyond."""
_LONGEST_SEGMENT = 40
"""Operators; time and memory grow with pairs of ends, which are many in a large graph."""
_MOST_SCHEDULES = 4000
"""Of the first pass, and of each series of changes, impossible ones too; time grows with them."""
_USUAL_STEPS = 120
"""Operators; larger graphs and schedules count as several, so that a search takes no longer."""
_CHANGES = 500
"""Changes that are judged in each series; time grows with them."""
_MOST_TRIES = 20_000
"""Most changes are impossible, or no better even without a plan."""
_WORSE_NOW_AND_THEN, _NOW_AND_THEN = 0.01, 8
"""Every eighth change may raise the arena by this share, to leave a local minimum."""
_AT_PEAK = 0.5
"""Share of changes that are made where the peak of live bytes is."""
_KINDS = ("add", "remove", "boundary", "number", "keep", "direction", "cuts")
"""Of changes, to pick from."""
_UNLIMITED = 1 << 62


class Candidate(NamedTuple):
    """A choice of tilings of segments that do not overlap, in order.

    Attributes:
        tilings: the choice.
        peak_bytes: of live bytes.
        tail_bytes: that its operators take for good.
        macs: extra ones, beyond those of the graph.
    """

    tilings: tuple[Tiling, ...]
    peak_bytes: int
    tail_bytes: int
    macs: int

    @property
    def arena(self) -> int:
        """What no arena is below."""
        return self.peak_bytes + self.tail_bytes


class Found(NamedTuple):
    """A choice of tilings, and its arena: by its plan, or without one its bound."""

    candidate: Candidate
    arena: int
    planned: Planned | None = None


class Search:
    """A search over the tilings of one graph.

    Args:
        info: of the graph.
        max_macs: multiply-accumulates that may come to those of the graph.
        plan: plans a graph in an arena below a limit; None where that fails.
    """

    def __init__(
        self, info: GraphInfo, max_macs: int, plan: Callable[[Graph, int], Planned | None]
    ) -> None:
        self._info, self._max_macs, self._plan = info, max_macs, plan
        self._random = random.Random(0)
        self._segment = functools.cache(self._new_segment)
        self._schedule = functools.lru_cache(self._new_schedule)
        self._tiling = functools.cache(self._alone)
        self.schedules = 0

    def best(self) -> Found | None:
        """Return the choice that takes the least arena, with its plan; None where none is found."""
        with _no_garbage_collection():
            path = self._best_path(self._edges())
            low = self._improved(Found(path, path.arena), _bound).candidate
            planned = self._planned(low, _UNLIMITED) if low.tilings else None
            best = None if planned is None else self._improved(planned, self._planned)
        for results in (self._segment, self._schedule, self._tiling):
            results.cache_clear()  # they refer to the search, and would last as long as it does
        return best

    def _weight(self, candidate: Candidate) -> int:
        """Return as how many plans one of a candidate counts: its time grows with its square."""
        added = (len(self._schedule(t).steps) - t.end + t.start for t in candidate.tilings)
        return max(1, ((len(self._info.rules) + sum(added)) // _USUAL_STEPS) ** 2)

    def _planned(self, candidate: Candidate, limit: int) -> Found | None:
        tilings = candidate.tilings
        pairs = [(self._segment(one.start, one.end), self._schedule(one)) for one in tilings]
        graph = tiled(self._info.graph, [(s, schedule) for s, schedule in pairs if s is not None])
        planned = self._plan(graph, limit)
        return None if planned is None else Found(candidate, planned.arena, planned)

    def _improved(self, start: Found, judge: Callable[[Candidate, int], Found | None]) -> Found:
        """Return the best choice after changes of one thing at a time."""
        current = best = start
        changes = tries = 0
        most = self.schedules + _MOST_SCHEDULES
        while changes < _CHANGES and tries < _MOST_TRIES and self.schedules < most:
            tries += 1
            changed = self._candidate(sorted(self._changed(list(current.candidate.tilings))))
            if changed is None or not changed.tilings or changed == current.candidate:
                continue
            worse = 1 + _WORSE_NOW_AND_THEN * (tries % _NOW_AND_THEN == 0)
            limit = int(worse * current.arena) + 1
            if changed.arena >= limit:
                continue
            changes += self._weight(changed)
            if (found := judge(changed, limit)) is not None:
                current, best = found, min(best, found, key=_arena)
        return best

    def _new_segment(self, start: int, end: int) -> Segment | None:
        if end - start > _LONGEST_SEGMENT:
            return None
        try:
            return Segment(self._info, start, end)
        except ImpossibleError:
            return None

    def _new_schedule(self, tiling: Tiling) -> Schedule:
        segment = self._segment(tiling.start, tiling.end)
        if segment is None:
            raise ImpossibleError
        return Schedule(segment, tiling, segment.macs + self._max_macs)

    def _alone(self, tiling: Tiling) -> Candidate | None:
        """Return what a tiled segment takes, tail and MACs beyond those of its operators.

        None where it cannot run so, or computes too much.
        """
        segment = self._segment(tiling.start, tiling.end)
        if segment is None:
            return None
        try:
            schedule = self._schedule(tiling)
        except ImpossibleError:
            self.schedules += 1
            return None
        self.schedules += 1 + len(schedule.steps) // _USUAL_STEPS
        cost = schedule.cost
        macs, tail = cost.macs - segment.macs, cost.tail_bytes - sum(segment.tails)
        if macs > self._max_macs:
            return None
        return Candidate((tiling,), cost.peak_bytes, tail, macs)

    def _candidate(self, tilings: Sequence[Tiling]) -> Candidate | None:
        """Return what a choice takes; None where it cannot be, or computes too much."""
        tilings = [one for one in tilings if one.cuts]
        peaks, tail, macs, before = list(self._info.peaks), self._info.tail, 0, 0
        for one in tilings:
            alone = self._tiling(one)
            if alone is None or one.start < before:
                return None
            before = one.end
            peaks[one.start : one.end] = [alone.peak_bytes] * (one.end - one.start)
            tail, macs = tail + alone.tail_bytes, macs + alone.macs
        if macs > self._max_macs:
            return None
        return Candidate(tuple(tilings), max(peaks), tail, macs)

    def _edges(self) -> dict[int, list[Candidate]]:
        """Return tiled segments that lower the peak, by their first operator."""
        edges: defaultdict[int, list[Candidate]] = defaultdict(list)
        for segment in self._segments():
            if self.schedules > _MOST_SCHEDULES:
                break
            before = max(self._info.peaks[segment.start : segment.end])
            every = frozenset(segment.outputs)
            found = [e for kept in (frozenset[int](), every) for e in self._numbers(segment, kept)]
            edges[segment.start] += _front([e for e in found if e.peak_bytes < before])
        return edges

    def _numbers(self, segment: Segment, kept: frozenset[int]) -> Iterator[Candidate]:
        """Yield a segment in some numbers of tiles, until more of them are of no use."""
        least, failed = _UNLIMITED, 0
        for count in _TILES:
            if count > segment.rows:
                return
            cuts = even_cuts(segment.rows, count)
            edge = self._tiling(Tiling(segment.start, segment.end, cuts, kept))
            if edge is None:
                failed += 1
            elif edge.peak_bytes < least:
                yield edge
                least = edge.peak_bytes
            if failed > 1 or (edge is not None and edge.peak_bytes > least):
                return  # more tiles compute more rows twice, or join more

    def _segments(self) -> Iterator[Segment]:
        """Yield segments between operators where few tensors are alive, the shortest first."""
        peaks = self._info.peaks
        crossing = [self._info.crossing(cut) for cut in range(len(peaks) + 1)]
        few = max(2, sorted(crossing)[len(crossing) // 2])
        for length in range(1, _LONGEST_SEGMENT + 1):
            for start, end in zip(range(len(peaks)), range(length, len(peaks) + 1), strict=False):
                if max(crossing[start], crossing[end]) <= few:
                    segment = self._segment(start, end)
                    if segment is not None and segment.least_bytes < max(peaks[start:end]):
                        yield segment

    def _best_path(self, edges: dict[int, list[Candidate]]) -> Candidate:
        """Return the path through the graph with the lowest bound."""
        peaks = self._info.peaks
        labels: list[list[Candidate]] = [[] for _ in range(len(peaks) + 1)]
        labels[0] = [Candidate((), 0, self._info.tail, 0)]
        for number, peak in enumerate(peaks):
            for label in _front(labels[number]):
                labels[number + 1].append(label._replace(peak_bytes=max(label.peak_bytes, peak)))
                for edge in edges.get(number, ()):
                    if label.macs + edge.macs <= self._max_macs:
                        labels[edge.tilings[0].end].append(_followed(label, edge))
        return min(labels[-1], key=lambda one: one.arena)

    def _changed(self, tilings: list[Tiling]) -> list[Tiling]:
        """Return tilings of which one is changed, added or left out."""
        pick, at_peak = self._random.choice, self._random.random() < _AT_PEAK
        untiled = self._untiled_peaks(tilings)
        found = [self._tiling(one) for one in tilings]
        peaks = [0 if one is None else one.peak_bytes for one in found]
        change = pick(_KINDS)
        if not tilings or change == "add" or (at_peak and max(untiled) >= max(peaks)):
            return [*tilings, self._new(tilings, untiled)]
        number = peaks.index(max(peaks)) if at_peak else self._random.randrange(len(tilings))
        one = tilings.pop(number)
        if change == "remove":
            return tilings
        changed = self._one_changed(one, change)
        return [*self._fitted(tilings, one, changed), changed]

    def _one_changed(self, one: Tiling, change: str) -> Tiling:
        pick = self._random.choice
        segment = self._segment(one.start, one.end)
        if segment is None:
            return one
        if change == "boundary":
            by = pick((-3, -2, -1, 1, 2, 3))
            start, end = pick(((one.start + by, one.end), (one.start, one.end + by)))
            inside = 0 <= start < end <= len(self._info.rules)
            return self._resized(one, start, end) if inside else one
        if change == "number":
            count = len(one.cuts) + 1 + pick((-2, -1, 1, 2))
            cuts = even_cuts(segment.rows, max(2, min(count, segment.rows)))
            return one._replace(cuts=cuts)
        if change == "keep":
            return one._replace(kept=one.kept ^ {pick(segment.outputs)})
        if change == "direction":
            return self._reversed(one)
        number, by = self._random.randrange(len(one.cuts)), pick((-2, -1, 1, 2))
        first, last = pick(((number, number), (number, len(one.cuts)), (0, number)))
        moved = {c + by * (first <= number <= last) for number, c in enumerate(one.cuts)}
        return one._replace(cuts=tuple(sorted(c for c in moved if 0 < c < segment.rows)))

    def _fitted(self, others: Sequence[Tiling], before: Tiling, after: Tiling) -> Iterator[Tiling]:
        """Yield the others, less what a moved boundary takes from them, or with what it leaves."""
        for other in others:
            start, end = other.start, other.end
            follows = self._random.choice((False, True))
            if start >= before.end:
                start = after.end if follows and start == before.end else max(start, after.end)
            else:
                end = after.start if follows and end == before.start else min(end, after.start)
            if (start, end) == (other.start, other.end):
                yield other
            elif start < end:
                yield self._resized(other, start, end)

    def _untiled_peaks(self, tilings: Sequence[Tiling]) -> list[int]:
        peaks = list(self._info.peaks)
        for one in tilings:
            peaks[one.start : one.end] = [0] * (one.end - one.start)
        return peaks

    def _new(self, tilings: Sequence[Tiling], peaks: Sequence[int]) -> Tiling:
        """Return a segment between the others, around an operator that often takes much."""
        high = max(range(len(peaks)), key=lambda i: peaks[i] * self._random.random())
        before = max((one.end for one in tilings if one.end <= high), default=0)
        behind = min((one.start for one in tilings if one.start > high), default=len(peaks))
        start = self._random.randint(max(before, high + 1 - _LONGEST_SEGMENT), high)
        end = self._random.randint(high + 1, min(behind, start + _LONGEST_SEGMENT))
        segment = self._segment(start, end)
        return Tiling(start, end, () if segment is None else even_cuts(segment.rows, 2))

    def _resized(self, one: Tiling, start: int, end: int) -> Tiling:
        """Return a tiling of another segment, its tiles with the same shares of the rows.

        Rows are kept where they were; of operators that are new, where most others keep them.
        """
        segment, before = self._segment(start, end), self._segment(one.start, one.end)
        if segment is None or before is None:
            return Tiling(start, end, ())
        scaled = {round(cut * segment.rows / before.rows) for cut in one.cuts}
        cuts = tuple(sorted(scaled - {0, segment.rows}))
        known, every = frozenset(before.outputs), frozenset(segment.outputs)
        kept = one.kept & every
        if 2 * len(one.kept) > len(known):
            kept |= every - known
        return one._replace(start=start, end=end, cuts=cuts, kept=kept)

    def _reversed(self, one: Tiling) -> Tiling:
        """Return a tiling that runs the other way, in tiles of as many rows one after the other."""
        segment = self._segment(one.start, one.end)
        assert segment is not None, "it was tiled"
        cuts = tuple(segment.rows - cut for cut in reversed(one.cuts))
        return one._replace(cuts=cuts, upward=not one.upward)


def _arena(found: Found) -> int:
    return found.arena


def _bound(candidate: Candidate, _: int) -> Found:
    """Judge a choice without a plan."""
    return Found(candidate, candidate.arena)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Pause garbage collection: the search makes no cycles, and looking takes half its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _followed(label: Candidate, edge: Candidate) -> Candidate:
    return Candidate(
        (*label.tilings, *edge.tilings),
        max(label.peak_bytes, edge.peak_bytes),
        label.tail_bytes + edge.tail_bytes,
        label.macs + edge.macs,
    )


def _front(edges: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates of which no other one is better in everything."""
    kept: list[Candidate] = []
    for edge in sorted(edges, key=lambda e: e[1:]):
        if not any(e.tail_bytes <= edge.tail_bytes and e.macs <= edge.macs for e in kept):
            kept.append(edge)
    return kept
