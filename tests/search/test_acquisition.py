"""Expected improvements against numerical integration of what they are expectations of."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from scipy.integrate import quad

from shrink.search.acquisition import (
    expected_hypervolume_gain,
    expected_improvement,
    probability_within,
)

Front = list[tuple[list[float], float]]


def expectation(function: Callable[[float], float], mean: float, deviation: float) -> float:
    def weighted(x: float) -> float:
        density = math.exp(-0.5 * ((x - mean) / deviation) ** 2)
        return function(x) * density / (deviation * math.sqrt(2 * math.pi))

    low, high = mean - 12 * deviation, mean + 12 * deviation
    return float(quad(weighted, low, high, limit=2000, epsabs=1e-13)[0])


@pytest.mark.parametrize(
    ("level", "mean", "deviation"), [(0, 0, 1), (-3, 0, 1), (2, 0.5, 0.25), (-0.97, -0.9, 0.02)]
)
def test_expected_improvement_is_the_mean_of_what_lies_below_the_level(
    level: float, mean: float, deviation: float
) -> None:
    wanted = expectation(lambda x: max(0.0, level - x), mean, deviation)
    assert expected_improvement(level, mean, deviation) == pytest.approx(wanted, abs=1e-9)
    wanted = expectation(lambda x: float(x <= level), mean, deviation)
    assert probability_within(level, mean, deviation) == pytest.approx(wanted, abs=1e-6)


def test_certain_costs_improve_by_their_distance() -> None:
    assert expected_improvement(1.0, 0.25, 0.0) == 0.75
    assert expected_improvement(0.25, 1.0, 0.0) == 0.0
    assert (probability_within(1.0, 1.0, 0.0), probability_within(1.0, 1.1, 0.0)) == (1.0, 0.0)


def dominated(points: Front, reference: tuple[list[float], float]) -> float:
    """Return the volume between points and a reference: by inclusion and exclusion."""
    ends = [*reference[0], reference[1]]
    corners = [[*costs, cost] for costs, cost in points]
    total = 0.0
    for chosen in range(1, 2 ** len(corners)):
        taken = [one for number, one in enumerate(corners) if chosen >> number & 1]
        worst = [max(values) for values in zip(*taken, strict=True)]
        volume = math.prod(max(0.0, end - w) for end, w in zip(ends, worst, strict=True))
        total += volume if len(taken) % 2 else -volume
    return total


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_the_expected_gain_of_volume_is_the_mean_of_the_volume_gained(axes: int, seed: int) -> None:
    chance = random.Random(f"{axes}{seed}")
    front: Front = [
        ([chance.uniform(0, 1.2) for _ in range(axes)], -chance.uniform(0, 1)) for _ in range(5)
    ]
    known, reference = [chance.uniform(0, 0.8) for _ in range(axes)], ([1.0] * axes, 0.0)
    mean, deviation = -0.6, 0.15
    before = dominated(front, reference)
    wanted = expectation(
        lambda x: dominated([*front, (known, x)], reference) - before, mean, deviation
    )
    found = expected_hypervolume_gain(known, mean, deviation, front, reference)
    assert found == pytest.approx(wanted, rel=1e-5)
    assert found > 0


def test_nothing_is_gained_beyond_the_reference_or_behind_the_front() -> None:
    front: Front = [([0.2], -0.9)]
    assert expected_hypervolume_gain([1.0], -1.0, 0.1, front, ([1.0], 0.0)) == 0
    assert expected_hypervolume_gain([0.3], -0.9, 0.0, front, ([1.0], 0.0)) == 0
    assert expected_hypervolume_gain([0.1], -0.9, 0.0, front, ([1.0], 0.0)) == pytest.approx(0.09)
