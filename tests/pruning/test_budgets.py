"""The least pruning that a measured figure allows, where arithmetic does not know all of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.graph.groups import ChannelGraph, find_groups
from shrink.pruning.allocation import any_channels, uniform
from shrink.pruning.budgets import Fit, by_figure

L = keras.layers


@pytest.fixture(scope="module")
def graph() -> ChannelGraph:
    inputs = L.Input((8, 8, 3))
    x = inputs
    for name, filters in (("one", 24), ("two", 24), ("three", 40)):
        x = L.Conv2D(filters, 3, padding="same", name=name)(x)
    return find_groups(keras.Model(inputs, L.Dense(4)(L.GlobalAveragePooling2D()(x))))


def widths(graph: ChannelGraph, keep: np.ndarray) -> list[int]:
    return [int(keep[group.channels].sum()) for group in graph.groups]


def macs(left: list[int]) -> int:
    """By hand: three convolutions of 8 x 8 places and a dense layer."""
    one, two, three = left
    return 64 * 9 * (3 * one + one * two + two * three) + 4 * three


FIGURES: dict[str, Callable[[list[int]], float]] = {
    "as planned": macs,
    "with a fixed part": lambda left: macs(left) + 200_000,
    "with a part that falls otherwise": lambda left: macs(left) + 50_000 * (left[0] + left[2]),
    "in steps of 50,000": lambda left: 50_000 * -(-macs(left) // 50_000),
    "half of it": lambda left: macs(left) / 2,
}


@pytest.mark.parametrize("fraction", [0.9, 0.7, 0.5, 0.35])
@pytest.mark.parametrize("name", FIGURES)
def test_by_figure_meets_the_budget_and_cuts_no_more_than_needed(
    name: str, fraction: float, graph: ChannelGraph
) -> None:
    figure = FIGURES[name]
    tried = []

    def measure(keep: np.ndarray) -> float:
        tried.append(widths(graph, keep))
        return figure(tried[-1])

    before = figure([24, 24, 40])
    limit = fraction * before
    fit = by_figure(graph, name, limit, uniform(graph.groups), measure, graph.macs)
    left = [w - n for w, n in zip((24, 24, 40), fit.counts, strict=True)]
    assert (fit.before, fit.after) == (before, figure(left))
    assert fit.after <= limit
    # Every group keeps the same fraction, to one channel.
    assert np.ptp([n / w for n, w in zip(left, (24, 24, 40), strict=True)]) <= 1 / 24 + 1e-9
    assert len(tried) == fit.measurements <= 14
    if fit.after < 0.98 * limit:
        more = [[w + (n == place) for n, w in enumerate(left)] for place in range(3)]
        assert max(map(figure, more)) > limit or fit.after + 50_000 > limit, (left, tried)


def test_by_figure_says_what_is_possible(graph: ChannelGraph) -> None:
    def measure(keep: np.ndarray) -> float:
        return macs(widths(graph, keep)) + 900_000

    least = macs([1, 1, 1]) + 900_000
    with pytest.raises(StageError, match=f"macs: 900,000 is out of reach.* {least:,} are left"):
        by_figure(graph, "macs", 900_000, uniform(graph.groups), measure, graph.macs)


def test_by_figure_removes_nothing_where_nothing_has_to_go(graph: ChannelGraph) -> None:
    fit = by_figure(graph, "macs", 7, uniform(graph.groups), lambda keep: 7.0, graph.macs)
    assert fit == Fit([0, 0, 0], 7.0, 7.0, 1)


def test_by_figure_keeps_multiples(graph: ChannelGraph) -> None:
    def measure(keep: np.ndarray) -> float:
        return macs(widths(graph, keep)) + 900_000

    limit = 0.6 * measure(graph.keep(np.array([])))
    fit = by_figure(graph, "macs", limit, uniform(graph.groups, 8), measure, graph.macs)
    assert measure(graph.keep(any_channels(graph, fit.counts))) <= limit
    assert [n % 8 for n in fit.counts] == [0, 0, 0]
