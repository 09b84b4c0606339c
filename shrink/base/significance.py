"""Tests of paired differences, and what several of them at once prove, in pure Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from shrink.base.intervals import Bounds, effective_number, few_make_it_up, is_binary, student_p
from shrink.base.resampled import Resampled, paired_influences

LEVEL = 0.05
"""At which differences are proven."""
_EXACT = 2_000
"""Discordant pairs up to which the binomial tail is summed in whole numbers."""


def mcnemar_p(lost: int, won: int) -> float:
    """Return the two-sided p of McNemar's exact test (the sign test of the discordant pairs).

    Under the null hypothesis, of the examples that one model gets right and the other wrong each
    is as likely to be the one as the other: twice the binomial tail at 1/2, at most 1.

    Args:
        lost: examples that were right before and are wrong now.
        won: the other way round.
    """
    total, least = lost + won, min(lost, won)
    if total <= _EXACT:
        tail = sum(math.comb(total, k) for k in range(least + 1))
        return min(1.0, float(2 * tail / 2**total)) if total else 1.0
    logs = (
        math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1)
        for k in range(least + 1)
    )
    return min(1.0, 2 * math.fsum(math.exp(log - total * math.log(2)) for log in logs))


def holm(levels: Sequence[float]) -> list[float]:
    """Return p values adjusted for each other: Holm, Scand. J. Statist. 6:65 (1979).

    The k-th smallest of m is multiplied by m - k + 1, and is at least as large as the one before.

    Args:
        levels: p of each test; in any order, which the result keeps.
    """
    adjusted, largest = [0.0] * len(levels), 0.0
    for rank, index in enumerate(sorted(range(len(levels)), key=levels.__getitem__)):
        largest = max(largest, min(1.0, (len(levels) - rank) * levels[index]))
        adjusted[index] = largest
    return adjusted


def paired_p(
    before: Sequence[float], after: Sequence[float], bounds: Bounds | None = None
) -> float:
    """Return the two-sided p of the difference of two means over the same examples.

    Of 0/1 scores that of McNemar's exact test, else the level at which the widened interval of
    Student's t (`paired_interval`) begins to exclude 0.

    Args:
        before, after: one finite score per example, in the same order.
        bounds: of a score; None where there are none.
    """
    if is_binary(before) and is_binary(after):
        lost = sum(1 for b, a in zip(before, after, strict=True) if b > a)
        won = sum(1 for b, a in zip(before, after, strict=True) if b < a)
        return mcnemar_p(lost, won)
    width = 0.0 if bounds is None else bounds[1] - bounds[0]
    apart = 0.0 if bounds is None else max(*before, *after) - min(*before, *after)
    differences = [a - b for b, a in zip(before, after, strict=True)]
    return student_p(differences, apart or width)


def resampled_p(before: Resampled, after: Resampled) -> float | None:
    """Return the two-sided p of the difference of a metric, from paired resamples.

    Twice the smaller share of resamples whose difference lies at 0 or beyond it, the sample itself
    counted as one of them (Davison and Hinkley 1997, 4.11): of B resamples at least 2 / (B + 1).
    None where resamples are others, or one of them has no difference.
    """
    differences = _differences(before, after)
    if not differences:
        return None
    beyond = min(sum(d <= 0 for d in differences), sum(d >= 0 for d in differences))
    return min(1.0, 2 * (1 + beyond) / (1 + len(differences)))


def resampled_test(
    before: Resampled, after: Resampled, tests: int = 1, bounds: Bounds | None = None
) -> tuple[Literal["bootstrap", "student"], float] | None:
    """Return what tests the difference of a metric, one of several, and its two-sided p.

    That is `resampled_p`, but the level at which the widened Student's t of the influences begins
    to exclude 0 where no resample lies beyond 0, and the least possible p of B resamples proves
    nothing among m tests at once: 2 m / (B + 1) >= 0.05. Where few examples make up the difference
    it is the larger of the two, as the interval covers both. None where `resampled_p` is.

    Args:
        before, after: of one metric, over the same examples.
        tests: m.
        bounds: what the metric cannot leave; None where there is nothing on some side.
    """
    p = resampled_p(before, after)
    if p is None:
        return None
    least = 2 / (1 + len(_differences(before, after)))
    influences, apart = paired_influences(before, after, bounds)
    t = student_p(influences, apart)
    if p == least and tests * least >= LEVEL:
        return "student", t
    if few_make_it_up(effective_number(influences, apart)) and t > p:
        return "student", t
    return "bootstrap", p


def _differences(before: Resampled, after: Resampled) -> list[float]:
    if before.draw != after.draw:
        return []
    pairs = zip(before.replicates, after.replicates, strict=True)
    return [a - b for b, a in pairs if a is not None and b is not None]
