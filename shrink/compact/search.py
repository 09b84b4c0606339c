"""Which stretches of operators run in which bands.

First, every stretch between places where few tensors are alive is tried with some numbers of
bands; then a path from the first operator to the last one is found, over single operators and
stretches in bands, that takes the least arena; then boundaries, numbers of bands, cuts and what is
kept between bands are moved, one at a time, as long as the arena falls. A schedule's peak is a
bound that plans meet to a few per cent, so the best few are handed out, to be planned.
"""

from __future__ import annotations

import functools
import random
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from shrink.compact.bands import Banding, Schedule
from shrink.compact.cuts import even_cuts, moved_cuts, turned
from shrink.compact.stretch import Impossible, Stretch, Survey

_BANDS = (2, 3, 4, 6, 8, 12)
_LONGEST_STRETCH = 40
_MOST_BANDS = 40
_MOST_LABELS = 32
_MOST_IDLE = 1000
_USUAL_OPERATORS = 120
_SLACK = 1.01
_MOST_ALIKE = 4
_SCHEDULES_KEPT = 200


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
    """A stretch in bands; tail and MACs are those that it has more than as it stands.

    The hottest of its bands, as they run, holds the peak.
    """

    banding: Banding
    peak: int
    tail: int
    macs: int
    hottest: int


class Search:
    """A search over the bands of one graph.

    Args:
        survey: of the graph; also an attribute.
        max_macs: multiply-accumulates that may come to those of the graph.
        tries: how many schedules of usual length may be tried, at most.
        seed: of the moves.
    """

    def __init__(self, survey: Survey, max_macs: int, tries: int, seed: int = 0) -> None:
        self.survey, self._max_macs = survey, max_macs
        self.schedule = functools.lru_cache(_SCHEDULES_KEPT)(self._schedule)
        self._tries = tries
        self._random = random.Random(seed)
        self._stretches: dict[tuple[int, int], Stretch | None] = {}
        self._edges: dict[Banding, _Edge | None] = {}
        self.tried = 0

    def candidates(
        self, starts: int, count: int, moved: Container[int] | None = None
    ) -> list[Candidate]:
        """Return choices of bands, few of the same stretches, the least arena first.

        Args:
            starts: how many paths may be moved, the least arena first.
            count: how many choices to return.
            moved: numbers of those that are; None for all.
        """
        seen: dict[tuple[Banding, ...], Candidate] = {}
        for number, label in enumerate(self._paths(self._coarse())):
            moves = number < starts and (moved is None or number in moved)
            for candidate in self._moves(label) if moves else (label,):
                seen[candidate.bandings] = candidate
        alike: defaultdict[tuple[tuple[int, int], ...], int] = defaultdict(int)
        found = []
        for candidate in sorted(seen.values(), key=lambda candidate: candidate.arena_bytes):
            stretches = tuple(banding[:2] for banding in candidate.bandings)
            alike[stretches] += 1
            if alike[stretches] <= _MOST_ALIKE:
                found.append(candidate)
        return found[:count]

    def _coarse(self) -> dict[int, list[_Edge]]:
        """Return the stretches in bands that lower the peak, by their first operator."""
        edges: defaultdict[int, list[_Edge]] = defaultdict(list)
        for stretch in self._hot_stretches():
            if self.tried > self._tries // 2:
                break
            kept = frozenset(stretch.outputs)
            found = [*self._numbers(stretch, frozenset()), *self._numbers(stretch, kept)]
            before = max(self.survey.peaks[stretch.start : stretch.end])
            edges[stretch.start] += _front([e for e in found if e.peak < before])
        return edges

    def _numbers(self, stretch: Stretch, kept: frozenset[int]) -> Iterator[_Edge]:
        """Yield a stretch in some numbers of bands, as far as more of them may be of use."""
        least, failed = 1 << 62, 0
        for bands in _BANDS:
            if bands > stretch.rows:
                return
            cuts = even_cuts(stretch.rows, bands)
            edge = self._edge(Banding(stretch.start, stretch.end, cuts, kept))
            if edge is None:
                failed += 1
            elif edge.peak < least:
                yield edge
                least = edge.peak
            if failed > 1 or (edge is not None and edge.peak > least):
                return  # more bands compute more rows twice, or join more
            if least <= _SLACK * stretch.least_bytes:
                return

    def _hot_stretches(self) -> list[Stretch]:
        survey = self.survey
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
                self._stretches[start, end] = Stretch(self.survey, start, end)
            except Impossible:
                self._stretches[start, end] = None
        return self._stretches[start, end]

    def _edge(self, banding: Banding) -> _Edge | None:
        """Return what a stretch in bands costs; None where it cannot, or computes too much."""
        if banding not in self._edges:
            self._edges[banding] = self._tried(banding)
        return self._edges[banding]

    def _tried(self, banding: Banding) -> _Edge | None:
        try:
            schedule = self.schedule(banding)
        except Impossible:
            return None
        stretch = self._stretch(banding.start, banding.end)
        assert stretch is not None, "it has a schedule"
        cost = schedule.cost
        self.tried += 1 + cost.operators // _USUAL_OPERATORS
        macs = cost.macs - stretch.macs
        if macs > self._max_macs:
            return None
        return _Edge(
            banding, cost.peak_bytes, cost.tail_bytes - sum(stretch.tails), macs, schedule.hottest
        )

    def _schedule(self, banding: Banding) -> Schedule:
        """Return the schedule of a stretch in bands.

        Raises:
            Impossible: there is none, or one that certainly computes too much.
        """
        stretch = self._stretch(banding.start, banding.end)
        if stretch is None:
            raise Impossible
        return Schedule(stretch, banding, stretch.macs + self._max_macs)

    def _paths(self, edges: dict[int, list[_Edge]]) -> list[Candidate]:
        """Return ways through the graph, the least arena first."""
        survey = self.survey
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
        highest = tail = macs = 0
        before = 0
        for banding in bandings:
            edge = self._edge(banding)
            if edge is None or banding.start < before:
                return None
            before = banding.end
            highest, tail = max(highest, edge.peak), tail + edge.tail
            macs += edge.macs
        if macs > self._max_macs:
            return None
        highest = max(highest, *self._plain_peaks(bandings))
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
        """Return bandings of which one is changed, added, split, joined or left out."""
        choice = self._random.random()
        plain = self._plain_peaks(bandings)
        if not bandings or choice < (0.3 if max(plain) >= self._highest(bandings) else 0.03):
            return [*bandings, self._new(bandings, plain)]
        place = self._random.randrange(len(bandings))
        if self._random.random() < 0.6:
            place = max(range(len(bandings)), key=lambda i: self._peak_of(bandings[i]))
        choice = self._random.random()
        banding = bandings.pop(place)
        if choice < 0.03:
            return bandings
        if choice < 0.08 and banding.end - banding.start > 2:
            middle = self._random.randrange(banding.start + 1, banding.end)
            parts = ((banding.start, middle), (middle, banding.end))
            return [*bandings, *(self._resized(banding, *part) for part in parts)]
        if choice < 0.12 and place < len(bandings) and bandings[place].start == banding.end:
            return [*bandings, self._resized(banding, banding.start, bandings.pop(place).end)]
        changed = self._changed(banding)
        return [*self._fitted(bandings, banding, changed), changed]

    def _fitted(
        self, others: Sequence[Banding], before: Banding, after: Banding
    ) -> Iterator[Banding]:
        """Yield the others, less what a moved boundary takes from them, or with what it leaves."""
        for other in others:
            start, end = other.start, other.end
            if start >= before.end:
                follows = start == before.end and self._random.random() < 0.5
                start = after.end if follows else max(start, after.end)
            else:
                follows = end == before.start and self._random.random() < 0.5
                end = after.start if follows else min(end, after.start)
            if (start, end) == (other.start, other.end):
                yield other
            elif start < end:
                yield self._resized(other, start, end)

    def _plain_peaks(self, bandings: Sequence[Banding]) -> list[int]:
        """Return the live bytes of each operator that is in no bands."""
        peaks = list(self.survey.peaks)
        for banding in bandings:
            peaks[banding.start : banding.end] = [0] * (banding.end - banding.start)
        return peaks

    def _highest(self, bandings: Sequence[Banding]) -> int:
        return max(map(self._peak_of, bandings), default=0)

    def _peak_of(self, banding: Banding) -> int:
        edge = self._edge(banding)
        return 0 if edge is None else edge.peak

    def _new(self, bandings: Sequence[Banding], peaks: Sequence[int]) -> Banding:
        """Return a stretch between the others, around an operator that takes much."""
        hottest = max(range(len(peaks)), key=lambda i: peaks[i] * self._random.uniform(0.7, 1))
        before = max((b.end for b in bandings if b.end <= hottest), default=0)
        behind = min((b.start for b in bandings if b.start > hottest), default=len(peaks))
        start = max(before, hottest - self._random.randrange(6))
        end = min(behind, hottest + 1 + self._random.randrange(6))
        return self._resized(Banding(start, end, ()), start, end)

    def _resized(self, banding: Banding, start: int, end: int, bands: int = 0) -> Banding:
        """Return a banding of another stretch, or into another number of bands.

        Bands keep their shares of the rows, and what is kept between them is kept where it can be.
        """
        stretch = self._stretch(start, end)
        if stretch is None:
            return Banding(start, end, ())
        before = self._stretch(banding.start, banding.end)
        if bands or before is None or not banding.cuts:
            count = max(2, min(bands or len(banding.cuts) + 1, stretch.rows, _MOST_BANDS))
            cuts = even_cuts(stretch.rows, count)
        else:
            scaled = {round(cut * stretch.rows / before.rows) for cut in banding.cuts}
            cuts = tuple(sorted(scaled - {0, stretch.rows}))
        known = frozenset[int]() if before is None else frozenset(before.outputs)
        kept = banding.kept & frozenset(stretch.outputs)
        if 2 * len(banding.kept) > len(known):
            kept |= frozenset(stretch.outputs) - known
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
            if not 0 <= start < end <= len(self.survey.rules):
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
        edge = self._edge(banding) if choice < 0.9 else None
        cuts = moved_cuts(banding, None if edge is None else edge.hottest, self._random)
        return banding._replace(cuts=tuple(sorted({cut for cut in cuts if 0 < cut < stretch.rows})))


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
