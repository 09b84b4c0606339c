"""Settings at random: which values a range has, and how often."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from shrink.recipe.search_config import Range
from shrink.search.space import Space, StageChain


def drawn(dimension: Any) -> list[Any]:
    space = Space((StageChain("", None, {"key": dimension}),))
    return [one["key"] for one in itertools.islice(space.random(seed=0), 300)]


@pytest.mark.parametrize(
    ("dimension", "values"),
    [
        (Range(low=1, high=4), [1, 2, 3, 4]),
        (Range(low=2, high=9, step=3), [2, 5, 8]),
        (Range(low=0.1, high=0.4, step=0.1), [0.1, 0.2, 0.3, 0.4]),
        (Range(low=1, high=3, step=0.5), [1.0, 1.5, 2.0, 2.5, 3.0]),
        (["a", None, 3], ["a", None, 3]),
    ],
)
def test_every_value_of_a_dimension_is_drawn_and_no_other(
    dimension: Any, values: list[Any]
) -> None:
    assert {repr(one) for one in drawn(dimension)} == {repr(one) for one in values}


@pytest.mark.parametrize(
    ("dimension", "kind", "middle"),
    [
        (Range(low=0.0, high=8.0), float, 4),
        (Range(low=0.01, high=100.0, log=True), float, 1),
        (Range(low=1, high=10_000, log=True), int, 100),
    ],
)
def test_half_of_the_values_of_a_range_are_below_its_middle(
    dimension: Range, kind: type, middle: float
) -> None:
    found = drawn(dimension)
    assert {type(one) for one in found} == {kind}
    assert all(dimension.low <= one <= dimension.high for one in found)
    below = sum(one < middle for one in found)
    assert abs(below - 150) < 4 * math.sqrt(300 / 4)  # four standard deviations of a fair coin
