"""Differences of one stage's figures to those of another, and what they prove."""

from __future__ import annotations

import math
from typing import Literal

from shrink.base.bootstrap import Resampled, resampled_difference, resampled_interval
from shrink.base.figures import FIGURES, format_change, metric_figure
from shrink.base.intervals import Bounds, Interval, mean_interval, paired_interval
from shrink.contract.details import Deltas, FigureDelta, Limits, MetricDelta
from shrink.contract.report import HasFigures, Stage
from shrink.contract.result import Evidence, Scores

_DECIMALS = 12


def stage_delta(stage: Stage, base: HasFigures, scores: Scores, base_scores: Scores) -> Deltas:
    """Return the difference of every figure, `stage` minus `base`.

    Sizes, memory and latency have `value` and `ratio`, metrics `value`, `low` and `high` at 95 %,
    and a `note` where these are wide or may be too narrow.
    A figure that is null on either side has a null difference.

    Args:
        stage: a stage of the report.
        base: what to compare with; the stage itself has differences of exactly 0 and ratios of 1.
        scores: what intervals of `stage` are computed from, by metric.
        base_scores: those of `base`.
    """
    delta: dict[str, FigureDelta | MetricDelta | None] = {
        name: figure_delta(stage.figure(name), base.figure(name))
        for name, figure in FIGURES.items()
        if figure.everywhere or stage.figure(name) is not None
    }
    for name in dict.fromkeys((*(stage.metrics or {}), *(base.metrics or {}))):
        value, base_value = stage.figure(name), base.figure(name)
        if value is None or base_value is None:
            delta[name] = None
        elif stage is base:
            delta[name] = MetricDelta(value=0.0, low=0.0, high=0.0)
        else:
            bounds = metric_figure(name).bounds
            interval = score_interval(base_scores.get(name), scores.get(name), bounds=bounds)
            delta[name] = metric_change(value, base_value, interval)
    return delta


def figure_delta(value: float | None, base: float | None) -> FigureDelta | None:
    """Return the difference and the ratio to `base`, None where either is null; no ratio to a 0."""
    if value is None or base is None:
        return None
    ratio = value / base if base else None
    return FigureDelta(value=exact_difference(value, base), ratio=ratio)


def exact_difference(value: float, base: float) -> float:
    """Return value - base without the noise of binary fractions: 0.98 - 0.96 is 0.02.

    A gate at 0.02 must not miss because of a last bit; 12 decimals are far below any example.
    """
    difference = value - base
    # + 0.0 makes a negative zero a plain one.
    return difference if isinstance(difference, int) else round(difference, _DECIMALS) + 0.0


def score_interval(
    before: Evidence | None,
    after: Evidence | None,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
) -> Interval | None:
    """Return the interval of a difference, or None where the scores do not allow one."""
    if isinstance(before, Resampled) or isinstance(after, Resampled):
        if not isinstance(before, Resampled) or not isinstance(after, Resampled):
            return None
        return resampled_difference(before, after, confidence, bounds)
    if not before or not after or len(before) != len(after):
        return None
    if not all(map(math.isfinite, before)) or not all(map(math.isfinite, after)):
        return None
    return paired_interval(before, after, confidence, bounds)


def metric_change(value: float, base: float, interval: Interval | None) -> MetricDelta:
    """Return the difference of a metric, with its interval where there is one."""
    limits = interval or Interval(value, None, None)
    change = exact_difference(value, base)
    return MetricDelta(value=change, low=limits.low, high=limits.high, note=limits.note)


def own_limits(evidence: Evidence | None, metric: str) -> Limits | None:
    """Return where a metric would lie on other examples; None where the scores do not tell."""
    interval, figure = None, metric_figure(metric)
    bounds = figure.bounds
    if isinstance(evidence, Resampled):
        interval = resampled_interval(evidence, bounds=bounds)
    elif evidence and all(map(math.isfinite, evidence)):
        interval = mean_interval(evidence, bounds=bounds)
    if interval is None:
        return None
    least, most = figure.range or (-math.inf, math.inf)
    low = None if interval.low is None else max(interval.low, least)
    high = None if interval.high is None else min(interval.high, most)
    return Limits(low=low, high=high, note=interval.note)


Verdict = Literal["better", "worse", "no proven difference"]


def proven(name: str, change: Interval | MetricDelta) -> Verdict | None:
    """Return what a difference of a metric proves, None without an interval.

    An interval that contains 0 proves no difference, whatever its middle.

    Args:
        name: of the metric, which decides the direction.
        change: the metric less what it was before.
    """
    if change.low is None or change.high is None:
        return None
    if change.low <= 0 <= change.high:
        return "no proven difference"
    return "better" if (change.low > 0) == metric_figure(name).larger_is_better else "worse"


def change_texts(name: str, change: Interval | MetricDelta) -> tuple[str, str | None]:
    """Return a metric's difference in its own unit, and its interval, None where it has none."""
    unit = metric_figure(name).unit
    text = f"{format_change(change.value, unit)}{' points' if unit == 'fraction' else ''}"
    if change.low is None or change.high is None:
        return text, None
    return text, f"{format_change(change.low, unit)} to {format_change(change.high, unit)}"


def control_sentence(
    name: str, alone: float, taught: float, teacher: float, gain: Interval, updates: int
) -> str:
    """Return what a teacher brought, in words and in the metric's own unit.

    Args:
        name: of the metric; `alone`, `taught` and `teacher` are its values.
        gain: `taught` less `alone`.
        updates: that each student was trained for.
    """
    figure = metric_figure(name)
    change, limits = change_texts(name, gain)
    span = f", 95 % interval {limits}: {proven(name, gain)}" if limits else "; there is no interval"
    return (
        f"control: after {updates:,} updates the student has {name} {figure.text(taught)} with its "
        f"teacher and {figure.text(alone)} without ({change}{span}); "
        f"the teacher has {figure.text(teacher)}"
    )
