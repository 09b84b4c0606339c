"""How often bootstrap intervals hold the truth, in simulation."""

from __future__ import annotations

import pytest

from tests.benchmarks.bench_intervals import CASES, SIZES, coverage

SAMPLES = 200
# 93 % less 2.3 standard deviations of a share of 200 samples: an interval that holds the truth in
# 93 % of samples misses this once in a hundred times.
LEAST = 0.93 - 2.3 * (0.93 * 0.07 / SAMPLES) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_intervals_of_a_metric_and_of_a_difference_hold_the_truth(name: str, n: int) -> None:
    own, change = coverage(name, CASES[name], n, SAMPLES)
    assert own >= LEAST
    assert change >= LEAST
