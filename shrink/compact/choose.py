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
from shrink.compact.plan import Plan, plan
from shrink.compact.search import Candidate, Search
from shrink.compact.stretch import Survey

_QUICK_ATTEMPTS = 60


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
        moves: how many plans may be made on the way from the best of them.
    """
    best = None
    for candidate in candidates:
        for turned in _turned(candidate):
            if best is None or turned.arena_bytes < best.arena_bytes:
                found = _planned(survey, turned)
                if best is None or found.arena_bytes < best.arena_bytes:
                    best = found
    assert best is not None
    current = best
    for _ in range(20 * moves):
        moved = search.neighbour(current.candidate)
        if moved is None or moved.arena_bytes >= current.arena_bytes:
            continue
        moves -= 1
        if moves < 0:
            break
        found = _planned(survey, moved)
        if found.arena_bytes <= current.arena_bytes:
            current = found
    return current


def _turned(candidate: Candidate) -> Iterator[Candidate]:
    """Yield a candidate with its stretches as they are, and by turns in both directions."""
    bandings = candidate.bandings
    yield candidate
    for first in (0, 1):
        by_turns = [b._replace(upward=bool((i + first) % 2)) for i, b in enumerate(bandings)]
        if tuple(by_turns) != bandings:
            yield candidate._replace(bandings=tuple(by_turns))


def _planned(survey: Survey, candidate: Candidate) -> Choice:
    graph = in_bands(survey, candidate.bandings)
    found = plan(graph, _QUICK_ATTEMPTS)
    tail = candidate.arena_bytes - candidate.peak_bytes
    size = max(found.size_bytes, temporary_bytes(graph))
    return Choice(candidate, graph, found, size + tail)
