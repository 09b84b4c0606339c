"""Ratios and budgets become counts that never empty a layer."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import RecipeError, StageError
from shrink.graph.groups import ChannelGraph, find_groups
from shrink.pruning.allocation import (
    any_channels,
    by_budget,
    by_ratios,
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
