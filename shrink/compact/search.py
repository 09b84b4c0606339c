"""Which stretches of operators run in which bands.

First, every stretch between places where few tensors are alive is tried with some numbers of
bands; then a path from the first operator to the last one is found, over single operators and
stretches in bands, that takes the least arena; then boundaries, numbers of bands, cuts and what is
kept between bands are moved, one at a time, as long as the arena falls. A schedule's peak is a
bound that plans meet to a few per cent, so the best few are handed out, to be planned.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shrink.compact.bands import Banding, Schedule
from shrink.compact.cost import Cost
from shrink.compact.stretch import Impossible, Stretch, Survey

_BANDS = (2, 3, 4, 6, 8, 12)
_LONGEST_STRETCH = 40
_MOST_BANDS = 40
_MOST_LABELS = 32
_MOST_IDLE = 1000
_USUAL_OPERATORS = 120
_SLACK = 1.01


class Candidate(NamedTuple):
    """A choice of bands.

    Attributes:
        bandings: of stretches that do not overlap, in order.
        arena_bytes: estimated: the peak of live bytes and what lasts.
        peak_bytes: of live bytes.
        macs: more than the graph has.
    """

    bandings: tuple[Banding, ...]
    arena_bytes: int
    peak_bytes: int
    macs: int


class _Edge(NamedTuple):
    """A stretch in bands; tail and MACs are those that it has more than as it stands."""

    banding: Banding
    peak: int
    tail: int
    macs: int


class Search:
    """A search over the bands of one graph.

    Args:
        survey: of the graph.
        max_macs: multiply-accumulates that may come to those of the graph.
        tries: how many schedules of usual length may be tried, at most.
        seed: of the moves.
    """

    def __init__(self, survey: Survey, max_macs: int, tries: int, seed: int = 0) -> None:
        self._survey, self._max_macs = survey, max_macs
        self._tries = tries
        self._random = random.Random(seed)
        self._stretches: dict[tuple[int, int], Stretch | None] = {}
        self._edges: dict[Banding, _Edge | None] = {}
        self.tried = 0

    def candidates(self, starts: int, count: int) -> list[Candidate]:
        """Return choices of bands, the least arena first.

        Args:
            starts: how many paths are moved.
            count: how many choices to return, all of them from the moves of these paths.
        """
        seen: dict[tuple[Banding, ...], Candidate] = {}
        for label in self._paths(self._coarse())[:starts]:
            for candidate in self._moves(label):
                seen[candidate.bandings] = candidate
        return sorted(seen.values(), key=lambda candidate: candidate.arena_bytes)[:count]

    def _coarse(self) -> dict[int, list[_Edge]]:
        """Return the stretches in bands that lower the peak, by their first operator."""
        edges: defaultdict[int, list[_Edge]] = defaultdict(list)
        for stretch in self._hot_stretches():
            if self.tried > self._tries // 2:
                break
            found = []
            for bands in _BANDS:
                if bands > stretch.rows:
                    break
                for kept in (frozenset[int](), frozenset(stretch.outputs)):
                    cuts = even_cuts(stretch.rows, bands)
                    edge = self._edge(Banding(stretch.start, stretch.end, cuts, kept))
                    if edge is not None:
                        found.append(edge)
            before = max(self._survey.peaks[stretch.start : stretch.end])
            edges[stretch.start] += _front([e for e in found if e.peak < before])
        return edges

    def _hot_stretches(self) -> list[Stretch]:
        survey = self._survey
        count = len(survey.rules)
        crossing = [survey.crossing(place) for place in range(count + 1)]
        most = max(2, sorted(crossing)[len(crossing) // 2])
        places = [place for place in range(count + 1) if crossing[place] <= most]
        found = []
        highest = max(survey.peaks)
        for start in places:
            for end in places:
                if start < end <= start + _LONGEST_STRETCH and (s := self._stretch(start, end)):
                    inside = max(survey.peaks[start:end])
                    if inside > 0.3 * highest and s.least_bytes < 0.9 * inside:
                        found.append((-inside, end - start, start, s))
        return [entry[-1] for entry in sorted(found, key=lambda entry: entry[:3])]

    def _stretch(self, start: int, end: int) -> Stretch | None:
        if (start, end) not in self._stretches:
            try:
                self._stretches[start, end] = Stretch(self._survey, start, end)
            except Impossible:
                self._stretches[start, end] = None
        return self._stretches[start, end]

    def _edge(self, banding: Banding) -> _Edge | None:
        """Return what a stretch in bands costs; None where it cannot, or computes too much."""
        if banding not in self._edges:
            self._edges[banding] = self._tried(banding)
        return self._edges[banding]

    def _tried(self, banding: Banding) -> _Edge | None:
        stretch = self._stretch(banding.start, banding.end)
        if stretch is None:
            return None
        self.tried += 1
        try:
            cost: Cost = Schedule(stretch, banding).cost
        except Impossible:
            return None
        self.tried += cost.operators // _USUAL_OPERATORS
        plain = sum(
            m * stretch.height[t] for m, t in zip(stretch.row_macs, stretch.outputs, strict=True)
        )
        macs = cost.macs - plain
        if macs > self._max_macs:
            return None
        return _Edge(banding, cost.peak_bytes, cost.tail_bytes - sum(stretch.tails), macs)

    def _paths(self, edges: dict[int, list[_Edge]]) -> list[Candidate]:
        """Return ways through the graph, the least arena first."""
        survey = self._survey
        labels: list[list[Candidate]] = [[] for _ in range(len(survey.rules) + 1)]
        labels[0] = [Candidate((), 0, 0, 0)]
        for place, peak in enumerate(survey.peaks):
            here = labels[place] = _best_labels(labels[place])
            for label in here:
                tail = label.arena_bytes - label.peak_bytes
                highest = max(label.peak_bytes, peak)
                labels[place + 1].append(
                    Candidate(label.bandings, highest + tail, highest, label.macs)
                )
                for edge in edges.get(place, ()):
                    if label.macs + edge.macs <= self._max_macs:
                        labels[edge.banding.end].append(_followed(label, edge))
        return sorted(_best_labels(labels[-1]), key=lambda label: label.arena_bytes)

    def _candidate(self, bandings: Sequence[Banding]) -> Candidate | None:
        """Return what a choice costs; None where it cannot be, or computes too much."""
        bandings = [banding for banding in bandings if banding.cuts]
        peaks = list(self._survey.peaks)
        highest = tail = macs = 0
        before = 0
        for banding in bandings:
            edge = self._edge(banding)
            if edge is None or banding.start < before:
                return None
            before = banding.end
            peaks[banding.start : banding.end] = [0] * (banding.end - banding.start)
            highest, tail = max(highest, edge.peak), tail + edge.tail
            macs += edge.macs
        if macs > self._max_macs:
            return None
        highest = max(highest, *peaks)
        return Candidate(tuple(bandings), highest + tail, highest, macs)

    def _moves(self, start: Candidate) -> Iterator[Candidate]:
        """Yield a candidate, and those that it comes by on its way to where it takes less."""
        best = current = start
        yield start
        idle = 0
        budget = self.tried + self._tries // 6
        while self.tried < budget and idle < _MOST_IDLE:
            idle += 1
            moved = self.neighbour(current)
            if moved is None:
                continue
            slack = _SLACK if self._random.random() < 0.1 else 1.0
            if moved.arena_bytes <= slack * current.arena_bytes:
                current = moved
                yield moved
                if (moved.arena_bytes, moved.macs) < (best.arena_bytes, best.macs):
                    best, idle = moved, 0
        return

    def neighbour(self, candidate: Candidate) -> Candidate | None:
        """Return a choice that differs in one thing; None where it cannot be."""
        return self._candidate(sorted(self._move(list(candidate.bandings))))

    def _move(self, bandings: list[Banding]) -> list[Banding]:
        """Return bandings of which one is changed, added, split or left out."""
        choice = self._random.random()
        if not bandings or choice < 0.06:
            return [*bandings, self._new()]
        place = self._random.randrange(len(bandings))
        if self._random.random() < 0.6:
            place = max(range(len(bandings)), key=lambda i: self._peak_of(bandings[i]))
        banding = bandings.pop(place)
        if choice < 0.09:
            return bandings
        if choice < 0.14 and banding.end - banding.start > 2:
            middle = self._random.randrange(banding.start + 1, banding.end)
            parts = ((banding.start, middle), (middle, banding.end))
            return [*bandings, *(self._resized(banding, *part) for part in parts)]
        return [*bandings, self._changed(banding)]

    def _peak_of(self, banding: Banding) -> int:
        edge = self._edge(banding)
        return 0 if edge is None else edge.peak

    def _new(self) -> Banding:
        peaks = self._survey.peaks
        hottest = max(range(len(peaks)), key=lambda i: peaks[i] * self._random.random())
        start = max(0, hottest - self._random.randrange(6))
        end = min(len(peaks), hottest + 1 + self._random.randrange(6))
        return self._resized(Banding(start, end, ()), start, end)

    def _resized(self, banding: Banding, start: int, end: int, bands: int = 0) -> Banding:
        """Return a banding of another stretch, or into another number of bands."""
        bands = bands or len(banding.cuts) + 1
        stretch = self._stretch(start, end)
        if stretch is None:
            return Banding(start, end, ())
        kept = frozenset(stretch.outputs) if banding.kept else frozenset[int]()
        cuts = even_cuts(stretch.rows, max(2, min(bands, stretch.rows, _MOST_BANDS)))
        return Banding(start, end, cuts, kept, banding.slack, banding.upward)

    def _changed(self, banding: Banding) -> Banding:
        pick, choice = self._random.choice, self._random.random()
        stretch = self._stretch(banding.start, banding.end)
        if stretch is None:
            return banding
        if choice < 0.25:
            start, end = banding.start, banding.end
            if pick((True, False)):
                start += pick((-3, -2, -1, 1, 2, 3))
            else:
                end += pick((-3, -2, -1, 1, 2, 3))
            if not 0 <= start < end <= len(self._survey.rules):
                return banding
            return self._resized(banding, start, end)
        if choice < 0.4:
            bands = len(banding.cuts) + 1 + pick((-2, -1, 1, 2))
            return self._resized(banding, banding.start, banding.end, bands)
        if choice < 0.65:
            return banding._replace(kept=banding.kept ^ {pick(stretch.outputs)})
        if choice < 0.7:
            every = frozenset(stretch.outputs)
            return banding._replace(kept=every - banding.kept if pick((True, False)) else every)
        if choice < 0.75:
            return banding._replace(slack=pick((0, 1, 2, 4)))
        if choice < 0.8:
            return turned(banding, stretch.rows)
        return banding._replace(cuts=self._moved_cuts(banding.cuts, stretch.rows))

    def _moved_cuts(self, cuts: tuple[int, ...], rows: int) -> tuple[int, ...]:
        if not cuts:
            return cuts
        by = self._random.choice((-2, -1, 1, 2))
        place = self._random.randrange(len(cuts))
        last = len(cuts) if self._random.random() < 0.4 else place + 1
        moved = [cut + by if place <= i < last else cut for i, cut in enumerate(cuts)]
        return tuple(sorted({cut for cut in moved if 0 < cut < rows}))


def turned(banding: Banding, rows: int) -> Banding:
    """Return a banding that runs the other way, in bands of as many rows one after the other."""
    cuts = tuple(rows - cut for cut in reversed(banding.cuts))
    return banding._replace(cuts=cuts, upward=not banding.upward)


def even_cuts(rows: int, bands: int) -> tuple[int, ...]:
    """Return the rows at which so many bands of about as many rows end, the last aside."""
    return tuple(sorted({round(rows * i / bands) for i in range(1, bands)} - {0, rows}))


def _followed(label: Candidate, edge: _Edge) -> Candidate:
    highest = max(label.peak_bytes, edge.peak)
    tail = label.arena_bytes - label.peak_bytes + edge.tail
    bandings = (*label.bandings, edge.banding)
    return Candidate(bandings, highest + tail, highest, label.macs + edge.macs)


def _front(edges: Sequence[_Edge]) -> Iterator[_Edge]:
    """Yield the edges of which no other one is better in everything."""
    kept: list[_Edge] = []
    for edge in sorted(edges, key=lambda e: e[1:]):
        if not any(e.tail <= edge.tail and e.macs <= edge.macs for e in kept):
            kept.append(edge)
            yield edge


def _best_labels(labels: Sequence[Candidate]) -> list[Candidate]:
    kept: list[Candidate] = []
    for label in sorted(labels, key=lambda c: (c.peak_bytes, c.arena_bytes, c.macs)):
        tail = label.arena_bytes - label.peak_bytes
        if not any(k.arena_bytes - k.peak_bytes <= tail and k.macs <= label.macs for k in kept):
            kept.append(label)
    kept.sort(key=lambda c: c.arena_bytes)
    return (
        kept[:_MOST_LABELS] + sorted(kept[_MOST_LABELS:], key=lambda c: c.macs)[: _MOST_LABELS // 2]
    )
