"""The choice of bands whose plan is the lowest.

Two processes search, one of them this one, from different starts; the graph itself is made, and
planned at length, for the few best of all that they find. How many processors there are, and which
one ends first, changes nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from shrink.base import files
from shrink.base.child import run_child
from shrink.compact.banded import in_bands
from shrink.compact.bands import Banding
from shrink.compact.choose_child import MODULE, PartAnswer, PartRequest, read_choice
from shrink.compact.cost import graph_tail, temporary_bytes
from shrink.compact.graph import Graph, write_graph
from shrink.compact.moves import PARTS, Choice, moved_choices
from shrink.compact.plan import Plan, plan_below
from shrink.compact.stretch import Survey

_UNLIMITED = 1 << 62
_FINAL_CHOICES = 6
_FINAL_ATTEMPTS = 5000
_TIMEOUT_S = 3600.0
_WORTH_A_PROCESS = 12
"""Operators; with fewer, the search takes about as long as a process to start."""


class Chosen(NamedTuple):
    """A graph in bands, with its plan."""

    bandings: tuple[Banding, ...]
    graph: Graph
    plan: Plan


def choose(survey: Survey, max_macs: int) -> Chosen | None:
    """Return the choice that takes the least arena; None where none has bands.

    Args:
        survey: of the graph.
        max_macs: multiply-accumulates that may come to those of the graph.
    """
    with ThreadPoolExecutor(PARTS - 1) as pool:  # each waits for a process
        others: list[Future[list[Choice] | None]] = []
        if len(survey.rules) >= _WORTH_A_PROCESS:
            others = [pool.submit(_in_child, survey, max_macs, n) for n in range(1, PARTS)]
        found = moved_choices(survey, max_macs, 0)
        answers = [other.result() for other in others] or [None] * (PARTS - 1)
    for part, answer in enumerate(answers, 1):
        found += moved_choices(survey, max_macs, part) if answer is None else answer
    return _lowest(survey, sorted(found, key=lambda choice: choice.arena_bytes))


def _in_child(survey: Survey, max_macs: int, part: int) -> list[Choice] | None:
    """Return what a part of the search finds, in a process of its own; None where that fails."""
    with tempfile.TemporaryDirectory(prefix="shrink-choose-") as folder:
        path = Path(folder) / "model.tflite"
        files.write_bytes(path, write_graph(survey.graph))
        request = PartRequest(str(path), max_macs, part)
        run = run_child(MODULE, request, PartAnswer, timeout_s=_TIMEOUT_S)
    if run.failure is not None or run.answer is None:
        return None
    return [read_choice(plain, survey.graph.used()) for plain in run.answer.choices]


def _lowest(survey: Survey, choices: Sequence[Choice]) -> Chosen | None:
    """Return the choice whose graph takes the least arena, of the first few.

    An outline leaves out what little a kernel's graph joins beyond its schedule, which constants
    stretches share, and what TFLite Micro takes while it plans.
    """
    best: Chosen | None = None
    limit = _UNLIMITED
    for choice in choices[:_FINAL_CHOICES]:
        candidate = choice.candidate
        graph = in_bands(survey, candidate.bandings)
        tail, temporary = graph_tail(graph), temporary_bytes(graph)
        if not candidate.bandings or temporary + tail >= limit:
            continue
        found = plan_below(graph, _FINAL_ATTEMPTS, limit - tail)
        if found is not None:
            limit = max(found.size_bytes, temporary) + tail
            best = Chosen(candidate.bandings, graph, found)
    return best
