"""Tests of paired differences, against closed forms worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from shrink.base.intervals import paired_interval
from shrink.base.resampled import Resampled
from shrink.base.significance import holm, mcnemar_p, paired_p, resampled_p, resampled_test


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (5, 0), (7, 2), (3, 3), (40, 21), (1, 9)])
def test_mcnemar_p_is_twice_the_binomial_tail(lost: int, won: int) -> None:
    tail = sum(math.comb(lost + won, k) for k in range(min(lost, won) + 1)) / 2 ** (lost + won)
    assert mcnemar_p(lost, won) == pytest.approx(min(1.0, 2 * tail), rel=1e-12)


def test_mcnemar_p_of_many_pairs_is_that_of_whole_numbers() -> None:
    total, least = 3_000, 1_440
    exact = 2 * sum(math.comb(total, k) for k in range(least + 1)) / 2**total
    assert mcnemar_p(total - least, least) == pytest.approx(exact, rel=1e-9)


def test_holm_multiplies_the_smallest_by_all_and_keeps_the_order() -> None:
    # By hand: 4 * 0.01, 3 * 0.02, then 2 * 0.02 < 0.06 and 1 * 0.5.
    assert holm([0.02, 0.5, 0.01, 0.02]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_paired_p_of_zeros_and_ones_counts_what_differs() -> None:
    before, after = [1.0] * 8 + [0.0] * 4, [0.0] * 6 + [1.0] * 2 + [0.0] * 3 + [1.0]
    assert paired_p(before, after) == pytest.approx(2 * (1 + 7) / 2**7)


@pytest.mark.parametrize("shift", [0.02, 0.1, 0.4])
def test_paired_p_of_losses_is_the_level_at_which_the_interval_ends_at_0(shift: float) -> None:
    random = np.random.default_rng(5)
    before = random.normal(size=60).tolist()
    after = [one + shift + 0.4 * random.normal() for one in before]
    p = paired_p(before, after)
    for level, contains in ((p * 0.99, True), (min(p * 1.01, 0.999), False)):
        interval = paired_interval(before, after, 1 - level)
        assert interval.low is not None
        assert interval.high is not None
        assert (interval.low <= 0 <= interval.high) is contains


def test_paired_p_of_losses_is_near_that_of_students_t_where_many_differ() -> None:
    random = np.random.default_rng(1)
    differences = random.normal(0.05, 1, 4_000)
    t = differences.mean() / (differences.std(ddof=1) / math.sqrt(len(differences)))
    wanted = math.erfc(abs(t) / math.sqrt(2))
    assert paired_p([0.0] * 4_000, differences.tolist()) == pytest.approx(wanted, rel=0.02)


def test_resampled_p_counts_paired_resamples_beyond_0() -> None:
    before = Resampled(0.5, (0.5, 0.4, 0.6, None), (0.5, 0.5), "a")
    after = Resampled(0.4, (0.4, 0.45, 0.3, 0.2), (0.4, 0.4), "a")
    # Differences -0.1, 0.05, -0.3 and the sample itself: 2 of 4 at 0 or above.
    assert resampled_p(before, after) == pytest.approx(1.0)
    assert resampled_p(after, after) == 1.0
    low = Resampled(0.3, (0.2, 0.1, 0.2, None), (0.3, 0.3), "a")
    assert resampled_p(before, low) == pytest.approx(2 * 1 / 4)
    assert resampled_p(before, Resampled(0.4, (), (), "b")) is None


def lower(by: float, resamples: int, seed: int = 4) -> tuple[Resampled, Resampled]:
    """A metric before and after: 900 influences that fall by normal values, all resamples lower."""
    random = np.random.default_rng(seed)
    differences = random.normal(-by, 1, 900)
    differences += -by - differences.mean()
    drawn = tuple((-by - 0.001 * np.arange(resamples)).tolist())
    before = Resampled(0.0, (0.0,) * resamples, (0.0,) * 900, "a")
    return before, Resampled(-by, drawn, tuple(differences.tolist()), "a")


def level_of(values: np.ndarray) -> float:
    """The p at which the widened t of a mean below 0 ends at 0, by its formula and SciPy."""
    count, mean = len(values), values.mean()
    squares, cubes, fourth = (((values - mean) ** k).sum() for k in (2, 3, 4))

    def end(p: float) -> float:
        z = stats.norm.isf(p / 2)
        variance = squares / (count - 1) / count + z * z * fourth / squares / count**2
        moved = cubes / squares * (1 + 2 * z * z) / (6 * count)
        return float(mean + moved + stats.t.isf(p / 2, count - 1) * math.sqrt(variance))

    return float(optimize.brentq(end, 1e-9, 0.999, xtol=1e-12))


@pytest.mark.parametrize(("tests", "name"), [(1, "bootstrap"), (10, "bootstrap"), (11, "student")])
def test_resampled_test_takes_t_where_so_few_resamples_prove_nothing(tests: int, name: str) -> None:
    # 2 / 401 is proven at 0.05 among 10 tests, and cannot be among 11.
    for by in (0.15, 0.06):
        before, after = lower(by, 400)
        t = level_of(np.array(after.influences))
        found = resampled_test(before, after, tests)
        assert found is not None
        assert found[0] == name
        assert found[1] == pytest.approx(2 / 401 if name == "bootstrap" else t, rel=2e-3)
    assert t == pytest.approx(2 * stats.t.sf(0.06 * 30, 899), rel=0.05)


def test_resampled_test_takes_t_where_one_example_makes_it_up() -> None:
    before = Resampled(0.0, (0.0,) * 2000, (0.0,) * 40, "a")
    after = Resampled(-0.01, (-0.01,) * 2000, (*[0.0] * 39, -0.4), "a")
    wanted = level_of(np.array(after.influences))
    assert wanted > 0.05
    found = resampled_test(before, after)
    assert found is not None
    assert found[0] == "student"
    assert found[1] == pytest.approx(wanted, rel=2e-3)
    assert resampled_test(before, Resampled(0.0, (), (), "b")) is None
