"""Random graphs in random bands of rows."""

from __future__ import annotations

import numpy as np

from shrink.compact.banded import in_bands
from shrink.compact.bands import Banding, Schedule
from shrink.compact.graph import read_graph, write_graph
from shrink.compact.plan import plan
from shrink.compact.stretch import Impossible, Stretch, Survey
from shrink.tflite.planner import aligned
from tests.compact.toys import random_net


def random_banding(survey: Survey, rng: np.random.Generator) -> Banding | None:
    """Return some way to run a stretch in bands; None where the one that was drawn is none."""
    count = len(survey.rules)
    start = int(rng.integers(0, count))
    end = int(rng.integers(start + 1, count + 1))
    try:
        stretch = Stretch(survey, start, end)
        drawn = rng.integers(1, max(2, stretch.rows), int(rng.integers(1, 13)))
        cuts = tuple(sorted({int(cut) for cut in drawn if cut < stretch.rows}))
        share = rng.choice([0.0, 0.5, 1.0])
        kept = frozenset(t for t in stretch.outputs if rng.random() < share)
        slack, upward = int(rng.choice([0, 1, 3])), bool(rng.integers(0, 2))
        banding = Banding(start, end, cuts, kept, slack, upward)
        Schedule(stretch, banding)
    except Impossible:
        return None
    return banding


def banded_file(seed: int, tries: int = 10) -> bytes | None:
    """Return a random graph in random bands, with its plan; None where no try was possible."""
    survey = Survey(read_graph(random_net(seed)))
    rng = np.random.default_rng(seed)
    for _ in range(tries):
        if banding := random_banding(survey, rng):
            graph = in_bands(survey, [banding])
            return write_graph(graph, plan(graph, 100).offsets)
    return None


def half_planned_file(seed: int) -> bytes:
    """Return a random graph whose plan gives every second activation a place of its own."""
    graph = read_graph(random_net(seed))
    offsets, end = dict[int, int](), 0
    for index in graph.activations(graph.used())[::2]:
        offsets[index] = end
        end += aligned(graph.tensors[index].size_bytes)
    return write_graph(graph, offsets)
