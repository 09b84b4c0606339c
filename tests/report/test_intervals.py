"""Intervals: published examples, table values, coverage, and the degenerate cases."""

from __future__ import annotations

import math
import random

import pytest

from shrink.report.intervals import (
    mean_interval,
    paired_interval,
    student_quantile,
    wilson_limits,
)

# Two-sided quantiles as printed in the common tables of Student's t.
T_TABLE = [
    (1, 0.90, 6.314),
    (1, 0.95, 12.706),
    (2, 0.95, 4.303),
    (3, 0.99, 5.841),
    (4, 0.95, 2.776),
    (5, 0.95, 2.571),
    (9, 0.99, 3.250),
    (10, 0.95, 2.228),
    (20, 0.90, 1.725),
    (30, 0.95, 2.042),
    (40, 0.95, 2.021),
    (60, 0.99, 2.660),
    (120, 0.95, 1.980),
    (100_000, 0.95, 1.960),
]


def pairs(both: int, lost: int, won: int, neither: int) -> tuple[list[float], list[float]]:
    before = [1.0] * (both + lost) + [0.0] * (won + neither)
    after = [1.0] * both + [0.0] * lost + [1.0] * won + [0.0] * neither
    return before, after


@pytest.mark.parametrize(("degrees", "confidence", "expected"), T_TABLE)
def test_student_quantile_agrees_with_the_tables(
    degrees: int, confidence: float, expected: float
) -> None:
    assert student_quantile(degrees, confidence) == pytest.approx(expected, abs=1e-3)


def test_student_quantile_is_continuous_where_the_methods_meet() -> None:
    steps = [student_quantile(d, 0.99) - student_quantile(d + 1, 0.99) for d in range(28, 34)]
    assert steps == sorted(steps, reverse=True)


def test_paired_interval_agrees_with_a_published_example() -> None:
    # Complete response before and after therapy (Cavo et al. 2012): -0.0621 (-0.1186 to -0.0046)
    # for before - after, as the R package contingencytables prints it, the companion of Fagerland,
    # Lydersen & Laake, Statistical Analysis of Contingency Tables (2017), chapter 8.
    interval = paired_interval(*pairs(59, 6, 16, 80))
    assert interval.value == pytest.approx(0.0621, abs=5e-5)
    assert interval.low == pytest.approx(0.0046, abs=5e-5)
    assert interval.high == pytest.approx(0.1186, abs=5e-5)


def test_paired_interval_turns_around_when_before_and_after_change_places() -> None:
    before, after = pairs(40, 7, 3, 12)
    forward, backward = paired_interval(before, after), paired_interval(after, before)
    assert forward.low == pytest.approx(-(backward.high or math.nan))
    assert forward.high == pytest.approx(-(backward.low or math.nan))


@pytest.mark.parametrize("table", [(10, 0, 0, 0), (0, 0, 0, 10), (9, 0, 0, 1), (500, 0, 0, 500)])
def test_paired_interval_has_width_when_no_pair_is_discordant(
    table: tuple[int, int, int, int],
) -> None:
    interval = paired_interval(*pairs(*table))
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low < 0 < interval.high
    assert interval.value == 0


@pytest.mark.parametrize("table", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)])
def test_paired_interval_stays_in_range_when_there_is_one_example(
    table: tuple[int, int, int, int],
) -> None:
    interval = paired_interval(*pairs(*table))
    assert interval.low is not None
    assert interval.high is not None
    assert -1 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.high - interval.low > 0.5


def test_paired_interval_covers_the_true_difference_at_its_confidence() -> None:
    generator = random.Random(5)
    covered = 0
    for _ in range(2000):
        before, after = [], []
        for _ in range(100):
            draw = generator.random()
            # P(both) = .80, P(lost) = .07, P(won) = .03, so the true difference is -0.04.
            before.append(float(draw < 0.87))
            after.append(float(draw < 0.80 or 0.87 <= draw < 0.90))
        interval = paired_interval(before, after)
        covered += (interval.low or 0.0) <= -0.04 <= (interval.high or 0.0)
    assert 0.935 <= covered / 2000 <= 0.985


def test_paired_interval_is_students_t_when_scores_are_not_binary() -> None:
    # Differences 1, 2, 3, 4, 5: mean 3, standard error sqrt(2.5 / 5), t(4) = 2.776.
    interval = paired_interval([0.5] * 5, [1.5, 2.5, 3.5, 4.5, 5.5])
    assert interval.value == pytest.approx(3)
    assert interval.low == pytest.approx(3 - 2.7764 * math.sqrt(0.5), abs=1e-3)
    assert interval.high == pytest.approx(3 + 2.7764 * math.sqrt(0.5), abs=1e-3)


def test_paired_interval_has_no_limits_when_one_score_is_not_binary() -> None:
    interval = paired_interval([0.5], [0.7])
    assert interval.value == pytest.approx(0.2)
    assert interval.low is None
    assert interval.high is None


def test_paired_interval_widens_with_confidence() -> None:
    before, after = pairs(80, 7, 3, 10)
    narrow, wide = paired_interval(before, after, 0.8), paired_interval(before, after, 0.99)
    assert (wide.low or 0) < (narrow.low or 0) < narrow.value
    assert (wide.high or 0) > (narrow.high or 0) > narrow.value


@pytest.mark.parametrize(
    ("before", "after"), [([1.0], [1.0, 0.0]), ([], []), ([math.nan], [1.0]), ([1.0], [math.inf])]
)
def test_paired_interval_refuses_what_cannot_be_paired(
    before: list[float], after: list[float]
) -> None:
    with pytest.raises(ValueError, match=r"paired|at least one|not finite"):
        paired_interval(before, after)


def test_wilson_limits_agree_with_a_published_example() -> None:
    # Newcombe, Statistics in Medicine 17:857 (1998), table I, method 3: 81 of 263.
    low, high = wilson_limits(81, 263, 1.959964)
    assert (low, high) == pytest.approx((0.2553, 0.3662), abs=5e-5)


@pytest.mark.parametrize(("scores", "limits"), [([1.0] * 9, (None, 1)), ([0.0] * 9, (0, None))])
def test_mean_interval_ends_at_the_range_when_all_scores_agree(
    scores: list[float], limits: tuple[float | None, float | None]
) -> None:
    interval = mean_interval(scores)
    assert interval.low == limits[0] or limits[0] is None
    assert interval.high == limits[1] or limits[1] is None
    assert (interval.high or 0) - (interval.low or 0) == pytest.approx(3.8415 / 12.8415, abs=1e-4)


def test_mean_interval_is_students_t_when_scores_are_not_binary() -> None:
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.value == 2
    assert interval.high == pytest.approx(2 + 4.303 / math.sqrt(3), abs=1e-3)
