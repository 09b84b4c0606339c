"""Bootstrap intervals of metrics that are not means over examples, in pure Python.

Whoever measures a metric gives what it is on a number of resamples of the examples. The resamples
are drawn by the number of examples alone: two artifacts that were measured on the same examples
have the same ones, and the difference of their values, resample by resample, is the paired
bootstrap of the difference. Nothing of the examples themselves is needed for that.

Limits are those of BCa (Efron, JASA 82:171, 1987): percentiles moved for the bias of the median and
for the acceleration, which is the skewness of the jackknife's influences over 6. Where few examples
make up a difference, no resample shows what the others might do; and no percentile lies beyond the
last resample, so that limits for many tests at once, beyond which fewer than 5 resamples lie, would
be too narrow. The interval then also covers that of the widened Student's t on the influences
(`shrink.base.intervals`).

A mean over classes hides what no resample varies: a class that is wholly right or wrong. Wilson's
limit of the smallest such class, times its part of the mean, is combined with the interval as in
MOVER (Zou and Donner, Statistics in Medicine 27:1693, 2008): by the root of the sum of squares.
Differences are left as they are: they are paired, and such a class mostly stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from shrink.base.intervals import (
    Bounds,
    Interval,
    effective_number,
    few_make_it_up,
    student_interval,
    wilson_limits,
)

_MOST_UNDEFINED = 0.05
"""Share of resamples without a value from which on there is no interval."""
_FEWEST_BEYOND = 5
"""Resamples that have to lie beyond a limit, on average, for a percentile to show it."""
_UNDEFINED = "no interval: a class has so few examples that many resamples of them are without it"


@dataclass(frozen=True)
class Resampled:
    """What the interval of one metric is computed from.

    Attributes:
        value: on the examples themselves.
        replicates: on each resample; None where the metric has no value there.
        influences: of blocks of examples, `value` on average: what the metric is with a block
            counted more, by the jackknife.
        draw: what decided the resamples; only those of one draw are paired.
        why: why there are no resamples, where there are none; else empty.
        reach: the furthest that one block's influence may lie from the others, over the range of
            the metric: more than 1 where the metric is of a few of the examples alone.
        part: of the metric that each class makes up, if it is a mean over classes.
        right, wrong: examples of the smallest class that is wholly right, or wrong; 0 without one.
    """

    value: float
    replicates: tuple[float | None, ...]
    influences: tuple[float, ...]
    draw: str
    why: str = ""
    reach: float = 1.0
    part: float = 0.0
    right: int = 0
    wrong: int = 0

    def unseen(self, confidence: float) -> tuple[float, float]:
        """Return how far below and above the value such a class may be in truth."""
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        below, above = (
            self.part * wilson_limits(0, count, z)[1] if count else 0.0
            for count in (self.right, self.wrong)
        )
        return below, above


def resampled_interval(
    sample: Resampled, confidence: float = 0.95, bounds: Bounds | None = None
) -> Interval:
    """Return a metric with its interval.

    Args:
        sample: of the metric.
        confidence: two-sided, in (0, 1).
        bounds: what the metric cannot leave; None where there is nothing on some side.
    """
    if sample.why:
        return Interval(sample.value, None, None, sample.why)
    far = max(sample.value - bounds[0], bounds[1] - sample.value) if bounds else 0.0
    unseen = far * sample.reach
    found = _bca(sample.value, sample.replicates, sample.influences, confidence, unseen, bounds)
    if bounds is None or sample.value in bounds or found.low is None or found.high is None:
        return found  # at a bound the interval is that of Wilson already
    below, above = sample.unseen(confidence)
    low = sample.value - math.hypot(sample.value - found.low, below)
    high = sample.value + math.hypot(found.high - sample.value, above)
    return replace(found, low=max(bounds[0], low), high=min(bounds[1], high))


def resampled_difference(
    before: Resampled,
    after: Resampled,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
) -> Interval | None:
    """Return `after` - `before` over the same examples, None where the resamples are others.

    Args:
        before, after: of one metric.
        confidence: two-sided, in (0, 1).
        bounds: what the metric cannot leave; None where there is nothing on some side.
    """
    if before.draw != after.draw or len(before.influences) != len(after.influences):
        return None
    if before.why or after.why:
        why = after.why or before.why
        return Interval(after.value - before.value, None, None, why)
    replicates = [
        None if a is None or b is None else b - a
        for a, b in zip(before.replicates, after.replicates, strict=True)
    ]
    influences, apart = paired_influences(before, after, bounds)
    width = None if bounds is None else (bounds[0] - bounds[1], bounds[1] - bounds[0])
    value = after.value - before.value
    return _bca(value, replicates, influences, confidence, apart, width)


def paired_influences(
    before: Resampled, after: Resampled, bounds: Bounds | None
) -> tuple[list[float], float]:
    """Return the differences of the influences of each block, and how far one more may lie.

    Args:
        before, after: of one metric, over the same examples.
        bounds: what the metric cannot leave; None where there is nothing on some side.
    """
    influences = [b - a for a, b in zip(before.influences, after.influences, strict=True)]
    if bounds is None:
        return influences, 0.0
    seen = (*before.influences, *after.influences)
    reach = max(before.reach, after.reach)
    return influences, max(seen) - min(seen) or reach * (bounds[1] - bounds[0])


def _bca(
    value: float,
    replicates: Sequence[float | None],
    influences: Sequence[float],
    confidence: float,
    unseen: float,
    bounds: Bounds | None,
) -> Interval:
    known = sorted(one for one in replicates if one is not None)
    if len(known) < (1 - _MOST_UNDEFINED) * len(replicates) or len(known) < 2:
        return Interval(value, None, None, _UNDEFINED)
    low, high = _limits(value, known, _acceleration(influences), confidence)
    low, high = min(low, value), max(high, value)
    note = None
    # Beyond such limits lie too few resamples to show where they are.
    coarse = (1 - confidence) / 2 * (len(known) + 1) < _FEWEST_BEYOND
    if coarse or few_make_it_up(effective_number(influences, unseen)):
        wide = student_interval(influences, confidence, unseen)
        if wide.low is not None and wide.high is not None:
            low, high, note = min(low, wide.low), max(high, wide.high), wide.note
    if bounds:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return Interval(value, low, high, note)


def _limits(
    value: float, replicates: Sequence[float], acceleration: float, confidence: float
) -> tuple[float, float]:
    """Return the BCa limits of sorted replicates; equations 3.8 and 6.8 of the paper."""
    normal, count = NormalDist(), len(replicates)
    below = sum(one < value for one in replicates)
    equal = sum(one == value for one in replicates)
    share = (below + equal / 2) / count
    moved = normal.inv_cdf(min(max(share, 0.5 / count), 1 - 0.5 / count))

    def limit(probability: float) -> float:
        z = moved + normal.inv_cdf(probability)
        shrunk = 1 - acceleration * z
        if shrunk <= 0:
            return replicates[0] if probability < 0.5 else replicates[-1]
        return _percentile(replicates, normal.cdf(moved + z / shrunk))

    return limit((1 - confidence) / 2), limit((1 + confidence) / 2)


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = min(max(share * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _acceleration(influences: Sequence[float]) -> float:
    mean = math.fsum(influences) / len(influences)
    squares = math.fsum((one - mean) ** 2 for one in influences)
    if squares == 0:
        return 0.0
    return math.fsum((one - mean) ** 3 for one in influences) / (6 * squares**1.5)
