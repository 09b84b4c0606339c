"""The choice of bands whose plan is the lowest.

A search by bounds finds choices; how much of a bound a plan meets depends on how what one stretch
frees suits the next. So the best choices are planned, each with stretches that run downward and
upward in turn, and the best of these is moved further, judged by its plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shrink.compact.banded import in_bands
from shrink.compact.cost import temporary_bytes
from shrink.compact.graph import Graph
from shrink.compact.plan import Plan, plan_below
from shrink.compact.search import Candidate, Search, turned
from shrink.compact.stretch import Survey

_QUICK_ATTEMPTS = 300
_STARTS = 3
_SLACK = 0.01
_PROMISING = 1.3
"""A choice that takes more than the best so far by this factor is not moved."""
_TRIES_A_MOVE = 20
_MOST_IDLE = 400
_USUAL_OPERATORS = 180
_UNLIMITED = 1 << 62


class Choice(NamedTuple):
    """A choice of bands, planned.

    Attributes:
        candidate: which bands.
        graph: in these bands.
        plan: of that graph.
        arena_bytes: estimated, less what the graph without bands takes for good.
    """

    candidate: Candidate
    graph: Graph
    plan: Plan
    arena_bytes: int


def choose(survey: Survey, search: Search, candidates: Sequence[Candidate], moves: int) -> Choice:
    """Return the choice that takes the least arena.

    Args:
        survey: of the graph.
        search: of its bands.
        candidates: to begin with, at least one.
        moves: how many plans of usual length may be made on the way from the best of them.
    """
    begun: dict[tuple[tuple[int, int], ...], Choice] = {}
    limit = _UNLIMITED
    for candidate in candidates:
        for other in _turned(survey, candidate):
            found = _planned(survey, other, limit)
            if found is None:
                continue
            limit = min(limit, int(found.arena_bytes * _PROMISING))
            stretches = tuple(banding[:2] for banding in other.bandings)
            if stretches not in begun or found.arena_bytes < begun[stretches].arena_bytes:
                begun[stretches] = found
    starts = sorted(begun.values(), key=lambda choice: choice.arena_bytes)[:_STARTS]
    ends = [_moved(survey, search, start, moves // len(starts)) for start in starts]
    return min(ends, key=lambda choice: choice.arena_bytes)


def _moved(survey: Survey, search: Search, start: Choice, moves: int) -> Choice:
    """Move a choice as long as its plan falls; a little worse is taken now and then."""
    best = current = start
    idle = 0
    for number in range(_TRIES_A_MOVE * moves):
        if moves <= 0 or idle >= _MOST_IDLE:
            break
        limit = int(current.arena_bytes * (1 + _SLACK * (number % 8 == 0))) + 1
        moved = search.neighbour(current.candidate)
        if moved is None or moved.arena_bytes >= limit or moved == current.candidate:
            continue
        work = 1 + len(current.graph.operators) // _USUAL_OPERATORS
        moves, idle = moves - work, idle + work
        found = _planned(survey, moved, limit)
        if found is not None:
            current = found
            if found.arena_bytes < best.arena_bytes:
                best, idle = found, 0
        elif current.arena_bytes > best.arena_bytes * (1 + _SLACK):
            current = best
    return best


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


def _planned(survey: Survey, candidate: Candidate, limit: int) -> Choice | None:
    """Return a candidate with its plan; None where its arena is not below the limit."""
    graph = in_bands(survey, candidate.bandings)
    tail = candidate.arena_bytes - candidate.peak_bytes
    temporary = temporary_bytes(graph)
    if temporary + tail >= limit:
        return None
    found = plan_below(graph, _QUICK_ATTEMPTS, limit - tail)
    if found is None:
        return None
    return Choice(candidate, graph, found, max(found.size_bytes, temporary) + tail)
