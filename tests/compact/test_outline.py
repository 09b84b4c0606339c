"""Outlines: what is planned on the way is what the graph in bands takes."""

from __future__ import annotations

import numpy as np
import pytest

from shrink.compact.banded import in_bands
from shrink.compact.bands import Banding, Schedule
from shrink.compact.graph import Graph, read_graph
from shrink.compact.layout import Layout, layout_of
from shrink.compact.outline import has_outline, outline
from shrink.compact.plan import height_below, plan
from shrink.compact.stretch import Stretch, Survey
from shrink.compact.views import blocks_of, live_bytes
from shrink.tflite.planner import aligned
from tests.compact.random_bands import random_banding
from tests.compact.toys import Net, chain


def skipping() -> bytes:
    """A net with a skip connection; its rows are of 32 bytes or more, all multiples of 16."""
    net = Net((1, 16, 8, 4))
    skip = net.conv(net.input, 8)
    low = net.conv(net.pool(skip, 2, 2, average=False, padding=1), 8)
    return net.file(net.conv(net.concat([skip, net.enlarge(low)]), 4))


def two_parts() -> bytes:
    net = Net((1, 24, 16, 3))
    half = net.conv(net.conv(net.input, 8), 8, stride=2)
    return net.file(net.conv(net.conv(half, 16), 4))


def scheduled(survey: Survey, *bandings: Banding) -> list[tuple[Banding, Schedule]]:
    return [(b, Schedule(Stretch(survey, b.start, b.end), b)) for b in bandings]


def assert_equally_alive(survey: Survey, *bandings: Banding) -> tuple[Graph, Layout]:
    stretches = scheduled(survey, *bandings)
    assert has_outline(survey, stretches)
    layout, steps = outline(survey, stretches)
    graph = in_bands(survey, bandings)
    assert steps == len(graph.operators)
    live = max(live_bytes(blocks_of(graph), steps))
    assert (
        layout.peak_bytes(steps) == layout_of(blocks_of(graph)).peak_bytes(steps) == aligned(live)
    )
    return graph, layout


@pytest.mark.parametrize("content", [chain(), skipping(), two_parts()])
def test_an_outline_keeps_alive_what_the_graph_in_bands_does(content: bytes) -> None:
    survey = Survey(read_graph(content))
    rng = np.random.default_rng(0)
    found = [banding for _ in range(20) if (banding := random_banding(survey, rng))]
    assert len(found) > 5
    for banding in found:
        assert_equally_alive(survey, banding)


def test_stretches_pass_on_rows_as_their_schedules_free_them() -> None:
    bandings = Banding(0, 2, (4, 8)), Banding(2, 4, (5,), upward=True)
    graph, layout = assert_equally_alive(Survey(read_graph(two_parts())), *bandings)
    steps = len(graph.operators)
    assert height_below(layout, steps, 300, 1 << 40) == plan(graph, 300).size_bytes


def test_without_bands_the_outline_is_that_of_the_graph() -> None:
    graph, layout = assert_equally_alive(Survey(read_graph(chain())))
    assert height_below(layout, len(graph.operators), 20, 1 << 40) == 2 * 16 * 8 * 24


def test_no_plan_is_found_below_the_bytes_that_are_live() -> None:
    graph, layout = assert_equally_alive(Survey(read_graph(chain())))
    assert height_below(layout, len(graph.operators), 20, 2 * 16 * 8 * 24) is None


def test_rows_that_cannot_begin_a_tensor_have_no_outline() -> None:
    net = Net((1, 24, 12, 3))
    survey = Survey(read_graph(net.file(net.conv(net.input, 8))))
    assert not has_outline(survey, scheduled(survey, Banding(0, 1, (4, 8))))
