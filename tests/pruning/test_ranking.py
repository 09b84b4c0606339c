"""One ranking of all channels, against a choice by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.graph.groups import Group, find_groups
from shrink.pruning.allocation import by_ranking, comparable

L = keras.layers
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
