"""Choices of bands moved to where their plans are lower.

A search by bounds finds choices; how much of a bound a plan meets depends on how what one stretch
frees suits the next. So the best choices are planned, each with stretches that run downward and
upward in turn, and the best of these are moved further, judged by their plans, which are made from
outlines.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shrink.compact.banded import in_bands
from shrink.compact.bands import Banding
from shrink.compact.cuts import turned
from shrink.compact.layout import layout_of
from shrink.compact.outline import has_outline, outline
from shrink.compact.plan import height_below
from shrink.compact.search import Candidate, Search
from shrink.compact.stretch import Survey
from shrink.compact.views import blocks_of

PARTS = 2
"""As many processes search, each from its own share of the starts."""
_TRIES, _STARTS, _CANDIDATES = 12_000, 6, 60
_WORK = 300_000
"""What plans may cost on the way from the best starts, in all parts together."""
_QUICK_ATTEMPTS = 120
_ROUNDS = ((3, 1 / 12), (2, 1 / 8))
"""How many choices a part moves, and the share of the work that each of them has."""
_SLACK = 0.01
_PROMISING = 1.3
"""A choice that takes more than the best so far by this factor is not moved."""
_TRIES_A_MOVE = 20
_PATIENCE, _KICKS, _KICK = 120, 2, 0.04
"""After so many moves in vain, so many may take so much more, from the best again."""
_LEAST_WORK, _USUAL_STEPS = 25, 150
"""What a plan costs at least; one of so many operators costs as many, others as their squares."""
_UNLIMITED = 1 << 62
_MOST_BESTS = 4


class Choice(NamedTuple):
    """A choice of bands, planned from its outline.

    Attributes:
        candidate: which bands.
        arena_bytes: estimated, less what the graph without bands takes for good.
        steps: operators.
    """

    candidate: Candidate
    arena_bytes: int
    steps: int


def moved_choices(survey: Survey, max_macs: int, part: int) -> list[Choice]:
    """Return the best choices that one part of the search finds, the least arena first.

    Args:
        survey: of the graph.
        max_macs: multiply-accumulates that may come to those of the graph.
        part: 0 to PARTS - 1. Each takes other starts, and moves them by other random numbers.
    """
    search = Search(survey, max_macs, _TRIES // PARTS, seed=part)
    with _uncollected():
        candidates = search.candidates(_STARTS, _CANDIDATES // PARTS, range(part, _STARTS, PARTS))
        planner = _Planner(search)
        ends = _begun(planner, candidates)
        for starts, share in _ROUNDS:
            moved = [_moved(planner, start, int(_WORK * share)) for start in ends[:starts]]
            ends = sorted(itertools.chain(*moved), key=_arena)
    return ends[:_MOST_BESTS]


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no cycles of garbage meanwhile: there are none, and it takes half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _begun(planner: _Planner, candidates: Sequence[Candidate]) -> list[Choice]:
    """Return the best choice of each set of stretches, planned, the least arena first."""
    begun: dict[tuple[tuple[int, int], ...], Choice] = {}
    limit = _UNLIMITED
    for candidate in candidates:
        for other in _turned(planner.search.survey, candidate):
            found = planner.planned(other, limit)
            if found is None:
                continue
            limit = min(limit, int(found.arena_bytes * _PROMISING))
            stretches = tuple(banding[:2] for banding in other.bandings)
            if stretches not in begun or found.arena_bytes < begun[stretches].arena_bytes:
                begun[stretches] = found
    return sorted(begun.values(), key=_arena)


def _arena(choice: Choice) -> int:
    return choice.arena_bytes


def _moved(planner: _Planner, start: Choice, work: int) -> list[Choice]:
    """Move a choice to where its plan is lower; a little worse is taken now and then.

    Returns:
        The best, each time that there was one.
    """
    best = current = start
    bests = [start]
    patience, kicks = _PATIENCE, 0
    for number in range(_TRIES_A_MOVE * work // _LEAST_WORK):
        if work <= 0:
            break
        if patience <= 0:
            current, patience, kicks = best, _PATIENCE, _KICKS
        slack = _KICK if kicks else _SLACK * (number % 8 == 0)
        limit = int(current.arena_bytes * (1 + slack)) + 1
        moved = planner.search.neighbour(current.candidate)
        if moved is None or moved.arena_bytes >= limit or moved == current.candidate:
            continue
        work -= max(_LEAST_WORK, current.steps**2 // _USUAL_STEPS)
        patience -= 1
        found = planner.planned(moved, limit)
        if found is not None:
            current, kicks = found, max(0, kicks - 1)
            if found.arena_bytes < best.arena_bytes:
                best, patience = found, _PATIENCE
                bests.append(found)
        elif not kicks and current.arena_bytes > best.arena_bytes * (1 + _KICK):
            current = best
    return bests[: -_MOST_BESTS - 1 : -1]


def _turned(survey: Survey, candidate: Candidate) -> Iterator[Candidate]:
    """Yield a candidate with its stretches as they are, and by turns in both directions."""
    yield candidate
    for first in (0, 1):
        by_turns = []
        for place, banding in enumerate(candidate.bandings):
            rows = survey.rows(banding.end - 1)
            upward = bool((place + first) % 2)
            by_turns.append(banding if banding.upward == upward else turned(banding, rows))
        if tuple(by_turns) != candidate.bandings:
            yield candidate._replace(bandings=tuple(by_turns))


class _Planner:
    """Plans choices of bands, and remembers which had no plan below a limit."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self._failed: set[tuple[tuple[Banding, ...], int]] = set()

    def planned(self, candidate: Candidate, limit: int) -> Choice | None:
        """Return a candidate with the height of its plan; None where its arena is not below."""
        if (candidate.bandings, limit) in self._failed:
            return None
        search, tail = self.search, candidate.arena_bytes - candidate.peak_bytes
        schedules = [(banding, search.schedule(banding)) for banding in candidate.bandings]
        if has_outline(search.survey, schedules):
            layout, steps = outline(search.survey, schedules)
        else:
            graph = in_bands(search.survey, candidate.bandings)
            layout, steps = layout_of(blocks_of(graph)), len(graph.operators)
        height = height_below(layout, steps, _QUICK_ATTEMPTS, limit - tail)
        if height is None:
            self._failed.add((candidate.bandings, limit))
            return None
        return Choice(candidate, height + tail, steps)
