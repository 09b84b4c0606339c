"""Confidence intervals of means and of paired differences, in pure Python.

0/1 scores get score intervals (Wilson 1927; Newcombe 1998), which never have zero width and never
leave the possible range.

All other scores (means over several outputs, ties, masked outputs, losses) get Student's t, widened
and moved for what it does not see in few examples that differ. Where two artifacts agree on nearly
every example, t is far too narrow, down to a width of zero. Its variance of the mean gets
z² s² / n² on top, s² = sum(r⁴) / sum(r²) of the residuals r: the squared size of a typical
difference among those that make up the variance. For 0/1 differences s is 1, and this is the width
that a score interval keeps with few or no events (Agresti and Coull 1998; Bonett and Price 2012).
It is moved for skewness as in Johnson's modified t (JASA 73:536, 1978). Both vanish as 1/n.

An interval says (`note`) where it is more, or may be less, than 95 % ask for. Few examples make it
up, by the effective number sum(r²)² / sum(r⁴): it is then up to 2.2 times as wide as t, as what is
possible is much more than what one sample shows. Or, of bounded scores, it is so narrow that the
mean would leave it if scores changed by their whole spread in 3 of n examples, which n examples do
not exclude (the rule of three). So may any interval of losses be, which have no bounds.
tests/base/test_intervals_coverage.py simulates all of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from shrink.base.errors import ReportWarning

_EXACT_DEGREES = 30
_BISECTIONS = 60
"""Of a p value: it is exact to 1e-9."""
_ROUNDING = 1e-12
_FEW = 12
"""Effective examples below which intervals hold the truth in more than 97 % of samples."""
_NOT_EXCLUDED = 3
"""Events that have a chance of 5 % to be seen in no example."""
_WIDE = "cautious (wide): only a few test examples decide it"
_NARROW = "too narrow if inputs of a kind that the test split lacks change far more"

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence limits.

    Attributes:
        low, high: None where one example says nothing.
        note: what the limits do not show: that they are wide, or may be too narrow.
    """

    value: float
    low: float | None
    high: float | None
    note: str | None = None


def is_binary(scores: Sequence[float]) -> bool:
    """Whether all scores are 0 or 1."""
    return set(scores) <= {0, 1}


def limit_below_resolution(
    metric: str, limit: float, scores: object, split: str, stage: str | None = None
) -> ReportWarning | None:
    """Return a warning where a single example changes a metric by more than it may drop.

    Args:
        metric: a mean over examples.
        limit: the largest drop allowed; 0 allows no lost example, which any number resolves.
        scores: the metric's scores by example; only scores of 0 and 1 have such a step.
        split: which the examples are of.
        stage: whose limit it is, None for the run.
    """
    if not isinstance(scores, Sequence) or not is_binary(scores) or limit <= 0:
        return None
    count, needed = len(scores), math.ceil(1 / limit - _ROUNDING)
    if not 0 < count < needed:
        return None
    key = f"data.{'test' if split == 'test' else 'validation'}_split"
    return ReportWarning(
        "limit-below-resolution",
        f"{count:,} {split} examples cannot resolve a drop of {100 * limit:g} points of {metric}: "
        f"each example is {100 / count:.1f} points, so the limit allows no lost example"
        + ("" if split == "test" else ", and the test split may lose more"),
        f"use at least {needed:,} {split} examples ({key}), and {_NOT_EXCLUDED * needed:,} for "
        "95 % confidence that the limit holds; or allow a larger drop",
        stage,
    )


def paired_interval(
    before: Sequence[float],
    after: Sequence[float],
    confidence: float = 0.95,
    bounds: Bounds | None = None,
) -> Interval:
    """Return mean(after) - mean(before) over the same examples, with its interval.

    For 0/1 scores method 10 of Newcombe, Statistics in Medicine 17:2635 (1998), else the widened
    Student's t on the differences. Where no example differs, a difference that was not seen may be
    as large as the scores lie apart; but losses, without bounds, are equal only where outputs are.

    Args:
        before: one finite score per example.
        after: the scores of the same examples in the same order.
        confidence: two-sided, in (0, 1).
        bounds: of a single score, such as (0, 1) of an accuracy; None where there are none.

    Raises:
        ValueError: no examples, different numbers of them, or a score that is not finite.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} scores cannot be paired with {len(after)}")
    _check(before)
    _check(after)
    if is_binary(before) and is_binary(after):
        pairs = Counter(zip(map(bool, before), map(bool, after), strict=True))
        return _newcombe(
            pairs[True, True],
            pairs[True, False],
            pairs[False, True],
            pairs[False, False],
            confidence,
        )
    differences = [b - a for a, b in zip(before, after, strict=True)]
    if bounds is None:
        return _student(differences, confidence, 0.0, None, 0.0)
    width = bounds[1] - bounds[0]
    apart = max(*before, *after) - min(*before, *after)
    return _student(differences, confidence, apart or width, (-width, width), apart)


def mean_interval(
    scores: Sequence[float], confidence: float = 0.95, bounds: Bounds | None = None
) -> Interval:
    """Return the mean of one score per example, with its interval.

    The score interval of Wilson (1927) for 0/1 scores, else the widened Student's t.

    Args:
        scores: one per example.
        confidence: two-sided, in (0, 1).
        bounds: of a score, such as (0, 1) of an accuracy; None where there are none.

    Raises:
        ValueError: no examples, or a score that is not finite.
    """
    _check(scores)
    if not is_binary(scores):
        unseen = max(scores[0] - bounds[0], bounds[1] - scores[0]) if bounds else 0.0
        apart = max(scores) - min(scores) if bounds else 0.0
        return _student(scores, confidence, unseen, bounds, apart)
    successes = round(sum(scores))
    low, high = wilson_limits(successes, len(scores), _normal_quantile(confidence))
    few = min(successes, len(scores) - successes) < _FEW
    return Interval(successes / len(scores), low, high, _WIDE if few else None)


def wilson_limits(successes: int, trials: int, z: float) -> tuple[float, float]:
    """Return the limits of Wilson's score interval for a proportion; z is the normal quantile."""
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # Rounding would leave 1e-17 in place of the exact limits 0 and 1.
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == trials else (centre + half) / scale
    return low, high


def student_quantile(degrees: int, confidence: float) -> float:
    """Return t with P(-t < T < t) = confidence, for whole degrees of freedom from 1.

    Up to 30 degrees the exact finite series is inverted (Abramowitz & Stegun 26.7.3 and 26.7.4);
    above, the expansion around the normal quantile (26.7.5) errs by less than 1e-4.
    """
    if degrees > _EXACT_DEGREES:
        z = _normal_quantile(confidence)
        first = (z**3 + z) / 4
        second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + first / degrees + second / degrees**2 + third / degrees**3
    low, high = 0.0, math.pi / 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _student_probability(degrees, middle) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def student_interval(values: Sequence[float], confidence: float, unseen: float) -> Interval:
    """Return the widened Student's t of any values, one per example or block of examples.

    Args:
        values: finite.
        confidence: two-sided, in (0, 1).
        unseen: how far a value may lie from the others where all of them are equal.
    """
    return _student(values, confidence, unseen, None, 0.0)


def effective_number(values: Sequence[float], unseen: float) -> float:
    """Return how many values make up the variance, sum(r²)² / sum(r⁴); 0 where all are equal."""
    return _moments(values, unseen).effective


def few_make_it_up(effective: float) -> bool:
    """Whether so few values make up a variance that it shows little of what is possible."""
    return effective < _FEW


def _newcombe(both: int, lost: int, won: int, neither: int, confidence: float) -> Interval:
    """Newcombe's method 10: Wilson limits of both margins, joined with their correlation phi."""
    total = both + lost + won + neither
    z = _normal_quantile(confidence)
    before, after = (both + lost) / total, (both + won) / total
    before_low, before_high = wilson_limits(both + lost, total, z)
    after_low, after_high = wilson_limits(both + won, total, z)
    phi = _phi(both, lost, won, neither)

    def distance(a: float, b: float) -> float:
        return math.sqrt(max(a * a - 2 * phi * a * b + b * b, 0.0))

    value = (won - lost) / total
    low = value - distance(after - after_low, before_high - before)
    high = value + distance(after_high - after, before - before_low)
    return Interval(value, max(low, -1.0), min(high, 1.0), _WIDE if lost + won < _FEW else None)


def _phi(both: int, lost: int, won: int, neither: int) -> float:
    """Return the correlation of the two margins, with the paper's continuity correction."""
    margins = (both + lost) * (won + neither) * (both + won) * (lost + neither)
    if margins == 0:
        return 0.0
    covariance = both * neither - lost * won
    if covariance > 0:
        covariance_corrected = max(covariance - (both + lost + won + neither) / 2, 0.0)
        return covariance_corrected / math.sqrt(margins)
    return covariance / math.sqrt(margins)


def _student(
    values: Sequence[float],
    confidence: float,
    unseen: float,
    bounds: Bounds | None,
    apart: float,
) -> Interval:
    """Return Student's t with the corrections that the head of this file tells.

    Args:
        values: one per example.
        confidence: two-sided.
        unseen: how far a value may lie from the others where all of them are equal.
        bounds: the limits' own, where there are any.
        apart: how far bounded scores lie apart, the most that one example is known to change.
    """
    if len(values) == 1:
        return Interval(values[0], None, None)
    sample = _moments(values, unseen)
    mean, count, effective = sample.mean, sample.count, sample.effective
    half, centre = _half_and_centre(sample, confidence)
    low, high = min(centre - half, mean), max(centre + half, mean)
    if bounds:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    if half <= _NOT_EXCLUDED * apart / count:
        return Interval(mean, low, high, _NARROW)
    return Interval(mean, low, high, _WIDE if effective < _FEW else None)


@dataclass(frozen=True)
class _Moments:
    """What the widened t is made of: sums over the residuals of a sample."""

    count: int
    mean: float
    squares: float
    typical: float
    skew: float
    effective: float


def _moments(values: Sequence[float], unseen: float) -> _Moments:
    count = len(values)
    mean = math.fsum(values) / count
    residuals = [value - mean for value in values]
    squares = math.fsum(r * r for r in residuals)
    typical, skew, effective = unseen * unseen, 0.0, 0.0
    # A constant's residuals are rounding.
    if squares > count * (_ROUNDING * max(abs(mean), unseen)) ** 2:
        typical = math.fsum(r**4 for r in residuals) / squares
        skew = math.fsum(r**3 for r in residuals) / squares
        effective = squares / typical
    return _Moments(count, mean, squares, typical, skew, effective)


def _half_and_centre(sample: _Moments, confidence: float) -> tuple[float, float]:
    """Return half the width of the interval, and its middle."""
    count, z = sample.count, _normal_quantile(confidence)
    variance = sample.squares / (count - 1) / count + z * z * sample.typical / count**2
    half = student_quantile(count - 1, confidence) * math.sqrt(variance)
    return half, sample.mean + sample.skew * (1 + 2 * z * z) / (6 * count)


def _student_probability(degrees: int, angle: float) -> float:
    """Return P(-t < T < t) with t = sqrt(degrees) * tan(angle)."""
    cosine = math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 + odd, degrees - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def _normal_quantile(confidence: float) -> float:
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _check(scores: Sequence[float]) -> None:
    if not scores:
        raise ValueError("an interval needs at least one score")
    if not all(map(math.isfinite, scores)):
        raise ValueError("a score is not finite")
