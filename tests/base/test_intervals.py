"""Intervals: published examples, table values, coverage, and the degenerate cases."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from shrink.base.intervals import (
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


def test_paired_interval_is_students_t_widened_when_scores_are_not_binary() -> None:
    # Differences 1, 2, 3, 4, 5: mean 3, variance of the mean 2.5 / 5, t(4) = 2.776. On top
    # z^2 s^2 / n^2, where s^2 = sum(r^4) / sum(r^2) = 34 / 10. No skewness.
    interval = paired_interval([0.5] * 5, [1.5, 2.5, 3.5, 4.5, 5.5])
    half = 2.7764 * math.sqrt(0.5 + 3.8415 * 3.4 / 25)
    assert interval.value == pytest.approx(3)
    assert interval.low == pytest.approx(3 - half, abs=1e-3)
    assert interval.high == pytest.approx(3 + half, abs=1e-3)


def test_paired_interval_is_students_t_when_there_are_many_examples() -> None:
    generator = random.Random(1)
    after = [generator.gauss(0, 1) for _ in range(5000)]
    interval = paired_interval([0.0] * 5000, after)
    half = 1.9604 * statistics.stdev(after) / math.sqrt(5000)
    assert interval.low == pytest.approx(interval.value - half, abs=0.01 * half)
    assert interval.high == pytest.approx(interval.value + half, abs=0.01 * half)


def test_paired_interval_moves_towards_the_longer_tail() -> None:
    # Seven examples of a hundred lose half a point each: more such losses are likelier than fewer.
    before, after = [1.0] * 90 + [0.5] * 10, [0.5] * 7 + [1.0] * 83 + [0.5] * 10
    interval = paired_interval(before, after, bounds=(0, 1))
    assert interval.value == pytest.approx(-0.035)
    assert interval.low is not None
    assert interval.high is not None
    assert interval.value - interval.low > interval.high - interval.value > 0


@pytest.mark.parametrize("count", [20, 200, 5000])
def test_paired_interval_has_width_when_means_of_outputs_agree(count: int) -> None:
    scores = [1.0, 0.5] * (count // 2)
    interval = paired_interval(scores, scores, bounds=(0, 1))
    assert interval.value == 0
    assert interval.low is not None
    assert interval.high is not None
    # Events of half a point that had a chance of 5 % not to be seen: 3 / n (the rule of three).
    assert interval.high == -interval.low
    assert interval.high > 0.5 * 3 / count


def test_intervals_scale_with_their_scores() -> None:
    before, after = [0.0, 0.5, 1.0, 0.25] * 20, [0.0, 0.75, 1.0, 0.5] * 20
    small, large = (
        paired_interval([f * x for x in before], [f * x for x in after]) for f in (1, 1000)
    )
    assert large.low == pytest.approx(1000 * (small.low or math.nan))
    assert large.high == pytest.approx(1000 * (small.high or math.nan))


def test_mean_interval_stays_within_bounds() -> None:
    interval = mean_interval([1.0] * 30 + [0.5], bounds=(0, 1))
    assert interval.high == 1
    assert interval.low is not None
    # One event of half a point in 31: no more than 5.57 such are expected, with 97.5 % (Poisson).
    assert interval.value - interval.low == pytest.approx(0.5 * (5.57 - 1) / 31, rel=0.3)


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


def test_mean_interval_is_students_t_widened_when_scores_are_not_binary() -> None:
    # Variance of the mean 1 / 3, on top z^2 s^2 / n^2 with s^2 = 2 / 2; t(2) = 4.303.
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.value == 2
    assert interval.high == pytest.approx(2 + 4.3027 * math.sqrt(1 / 3 + 3.8415 / 9), abs=1e-3)


def test_mean_interval_has_width_when_all_scores_are_the_same_half() -> None:
    interval = mean_interval([0.5] * 100, bounds=(0, 1))
    assert (interval.low or 0) < 0.485
    assert (interval.high or 0) > 0.515


def test_paired_interval_of_losses_has_no_width_when_no_loss_changed() -> None:
    losses = [0.1, 0.7, 3.0, 0.2] * 30
    interval = paired_interval(losses, losses)
    assert (interval.low, interval.value, interval.high) == (0, 0, 0)
    # It goes on from there: the width is that of the differences, however small.
    nearly = paired_interval(losses, [x + 1e-8 * (i % 3 - 1) for i, x in enumerate(losses)])
    assert nearly.high is not None
    assert 0 < nearly.high < 1e-8


def test_intervals_say_where_few_examples_make_them_up() -> None:
    assert "wide" in (paired_interval(*pairs(340, 2, 1, 17)).note or "")
    assert paired_interval(*pairs(300, 20, 10, 30)).note is None
    assert "wide" in (mean_interval([1.0] * 97 + [0.0] * 3).note or "")
    assert mean_interval([1.0] * 80 + [0.0] * 20).note is None
    generator = random.Random(2)
    before = [generator.gauss(5, 1) for _ in range(120)]
    after = [x + generator.gauss(0, 0.2) for x in before]
    assert paired_interval(before, after).note is None
    assert "wide" in (paired_interval(before, [*after[:-1], after[-1] + 20]).note or "")


def test_intervals_say_where_changes_that_were_not_seen_would_lie_outside() -> None:
    # Of a thousand examples with eight outputs 22 lose one: one that loses all is worth 8 of them.
    before = [1.0] * 900 + [0.0] * 100
    after = [0.875] * 22 + before[22:]
    assert "narrow" in (paired_interval(before, after, bounds=(0, 1)).note or "")
    assert "narrow" in (paired_interval([0.1, 0.7, 3.0] * 30, [0.1, 0.7, 3.0] * 30).note or "")
    halves = [0.5] * 60 + before[60:]
    assert paired_interval(before, halves, bounds=(0, 1)).note is None
