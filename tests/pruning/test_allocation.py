"""Ratios and budgets become counts that never empty a layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import RecipeError, StageError
from shrink.graph.groups import ChannelGraph, Group, find_groups
from shrink.pruning.allocation import (
    any_channels,
    by_budget,
    by_ranking,
    by_ratios,
    comparable,
    in_rounds,
    removed_count,
    uniform,
)

L = keras.layers


@pytest.fixture(scope="module")
def graph() -> ChannelGraph:
    inputs = L.Input((8, 8, 3))
    x = L.Conv2D(20, 3, padding="same", name="wide")(inputs)
    x = L.Conv2D(10, 3, padding="same", name="narrow")(x)
    return find_groups(keras.Model(inputs, L.Dense(4)(L.GlobalAveragePooling2D()(x))))


@pytest.mark.parametrize(
    ("size", "ratio", "round_to", "expected"),
    [
        (10, 0.3, 1, 3),
        (10, 0.0, 1, 0),
        (10, 0.999, 1, 9),
        (1, 0.9, 1, 0),
        (3, 0.3, 1, 0),
        (64, 0.3, 8, 16),
        (64, 0.01, 8, 0),
        (12, 0.5, 8, 4),
        (6, 0.9, 8, 0),
    ],
)
def test_removed_count_rounds_what_stays_up(
    size: int, ratio: float, round_to: int, expected: int
) -> None:
    assert removed_count(size, ratio, round_to) == expected


def test_by_ratios_takes_the_first_pattern_that_fits(graph: ChannelGraph) -> None:
    assert by_ratios(graph.groups, {"wi*": 0.5, "*": 0.2}, 0.0) == [10, 2]
    assert by_ratios(graph.groups, {"narrow": 0.5}, 0.1) == [2, 5]


def test_by_ratios_refuses_a_pattern_that_fits_nothing(graph: ChannelGraph) -> None:
    with pytest.raises(RecipeError, match="'wdie' fits no layer"):
        by_ratios(graph.groups, {"wdie": 0.5}, 0.0)


@pytest.mark.parametrize("fraction", [0.9, 0.5, 0.2])
@pytest.mark.parametrize("name", ["macs", "parameters"])
def test_by_budget_is_met_and_one_step_less_is_not(
    graph: ChannelGraph, name: str, fraction: float
) -> None:
    cost = getattr(graph, name)
    budget = fraction * cost(graph.keep(np.array([])))
    counts = by_budget(graph, cost, budget, name, uniform(graph.groups))
    assert cost(graph.keep(any_channels(graph, counts))) <= budget
    # The wide group moves by one channel at a time: with one more the budget is exceeded.
    less = [counts[0] - 1, min(counts[1], int((counts[0] - 1) / 20 * 10))]
    assert cost(graph.keep(any_channels(graph, less))) > budget


def test_by_budget_names_what_is_reachable(graph: ChannelGraph) -> None:
    one_channel_each = 27 + 1 + 9 + 1 + 4 + 4
    with pytest.raises(StageError, match=f"out of reach.* {one_channel_each} are left"):
        by_budget(graph, graph.parameters, 10, "parameters", uniform(graph.groups))


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
def test_in_rounds_removes_all_evenly(rounds: int) -> None:
    counts = [5, 0, 12, 1]
    found = np.array(in_rounds(counts, rounds))
    assert found.shape == (rounds, 4)
    assert found.sum(axis=0).tolist() == counts
    assert np.all(found.max(axis=0) - found.min(axis=0) <= 1)


SCORES = [np.array([4.0, 1.0, 9.0, 8.0]), np.array([3.0, 2.0, 5.0])]


@pytest.fixture(scope="module")
def groups() -> tuple[Group, ...]:
    inputs = L.Input((5,))
    x = L.Dense(3, name="second")(L.Dense(4, name="first")(inputs))
    return find_groups(keras.Model(inputs, L.Dense(2)(x))).groups


def test_by_ranking_takes_the_lowest_of_all_groups(groups: tuple[Group, ...]) -> None:
    allocate = by_ranking(groups, SCORES, 1)
    taken = [allocate(n / 5) for n in range(6)]
    assert taken == [[0, 0], [1, 0], [1, 1], [1, 2], [2, 2], [3, 2]]


def test_by_ranking_takes_equal_scores_from_all_groups_alike(groups: tuple[Group, ...]) -> None:
    allocate = by_ranking(groups, [np.ones(4), np.ones(3)], 1)
    taken = [allocate(n / 5) for n in range(6)]
    assert taken == [[0, 0], [1, 0], [1, 1], [2, 1], [2, 2], [3, 2]]


def test_by_ranking_leaves_multiples(groups: tuple[Group, ...]) -> None:
    allocate = by_ranking(groups, SCORES, 2)
    assert [allocate(n / 5) for n in range(6)] == [[0, 0], [0, 0], [0, 1], [0, 1], [2, 1], [2, 1]]


def test_by_ranking_takes_nothing_where_there_is_nothing() -> None:
    assert by_ranking((), (), 1)(1.0) == []


def test_comparable_divides_norms_by_their_mean_and_nothing_else() -> None:
    np.testing.assert_allclose(comparable(SCORES[1], "l2"), SCORES[1] / (10 / 3))
    assert comparable(SCORES[1], "lamp") is SCORES[1]
    assert not comparable(np.zeros(3), "l1").any()


@pytest.fixture(scope="module")
def three() -> ChannelGraph:
    inputs = L.Input((8, 8, 3))
    x = inputs
    for name, filters in (("one", 24), ("two", 24), ("three", 40)):
        x = L.Conv2D(filters, 3, padding="same", name=name)(x)
    return find_groups(keras.Model(inputs, L.Dense(4)(L.GlobalAveragePooling2D()(x))))


def widths(three: ChannelGraph, keep: np.ndarray) -> list[int]:
    return [int(keep[group.channels].sum()) for group in three.groups]


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


MEASURED = {"close": 0.98, "most": 14}


@pytest.mark.parametrize("fraction", [0.9, 0.7, 0.5, 0.35])
@pytest.mark.parametrize("name", FIGURES)
def test_by_budget_meets_a_measured_figure_and_cuts_no_more_than_needed(
    name: str, fraction: float, three: ChannelGraph
) -> None:
    figure = FIGURES[name]
    tried = []

    def measure(keep: np.ndarray) -> float:
        tried.append(widths(three, keep))
        return figure(tried[-1])

    limit = fraction * figure([24, 24, 40])
    counts = by_budget(three, measure, limit, name, uniform(three.groups), **MEASURED)
    left = [w - n for w, n in zip((24, 24, 40), counts, strict=True)]
    after = figure(left)
    assert after <= limit
    # Every group keeps the same fraction, to one channel.
    assert np.ptp([n / w for n, w in zip(left, (24, 24, 40), strict=True)]) <= 1 / 24 + 1e-9
    assert len(tried) <= 14
    if after < 0.98 * limit:
        more = [[w + (n == place) for n, w in enumerate(left)] for place in range(3)]
        assert max(map(figure, more)) > limit or after + 50_000 > limit, (left, tried)


def test_by_budget_says_what_a_measured_figure_can_be(three: ChannelGraph) -> None:
    def measure(keep: np.ndarray) -> float:
        return macs(widths(three, keep)) + 900_000

    least = f"{macs([1, 1, 1]) + 900_000:,}"
    with pytest.raises(StageError, match=f"macs: 900,000 is out of reach.* {least} are left"):
        by_budget(three, measure, 900_000, "macs", uniform(three.groups), **MEASURED)


def test_by_budget_removes_nothing_where_nothing_has_to_go(three: ChannelGraph) -> None:
    assert by_budget(three, lambda keep: 7.0, 7, "macs", uniform(three.groups)) == [0, 0, 0]


def test_by_budget_keeps_multiples(three: ChannelGraph) -> None:
    def measure(keep: np.ndarray) -> float:
        return macs(widths(three, keep)) + 900_000

    limit = 0.6 * measure(three.keep(np.array([])))
    counts = by_budget(three, measure, limit, "macs", uniform(three.groups, 8), **MEASURED)
    assert measure(three.keep(any_channels(three, counts))) <= limit
    assert [n % 8 for n in counts] == [0, 0, 0]
