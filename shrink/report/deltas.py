"""Differences of one stage's figures to those of another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shrink.base.figures import FIGURES, metric_figure
from shrink.base.intervals import Bounds, Interval, paired_interval

Scores = Mapping[str, Sequence[float]]
_DECIMALS = 12


def stage_delta(
    stage: Mapping[str, Any], base: Mapping[str, Any], scores: Scores, base_scores: Scores
) -> dict[str, Any]:
    """Return the difference of every figure, `stage` minus `base`; both as in the report.

    Sizes, memory and latency have `value` and `ratio`, metrics `value`, `low` and `high` at 95 %,
    and a `note` where these are wide or may be too narrow.
    A figure that is null on either side has a null difference.

    Args:
        stage: a stage of the report.
        base: the stage to compare with; the same name means the stage itself, whose differences
            are exactly 0 and whose ratios are 1.
        scores: per-example scores of `stage`, by metric.
        base_scores: those of `base`.
    """
    delta: dict[str, Any] = {}
    for name, figure in FIGURES.items():
        delta[name] = figure_delta(
            (stage[figure.group] or {}).get(name), (base[figure.group] or {}).get(name)
        )
    metrics, base_metrics = stage["metrics"] or {}, base["metrics"] or {}
    for name in dict.fromkeys((*metrics, *base_metrics)):
        value, base_value = metrics.get(name), base_metrics.get(name)
        if value is None or base_value is None:
            delta[name] = None
        elif stage["name"] == base["name"]:
            delta[name] = {"value": 0.0, "low": 0.0, "high": 0.0}
        else:
            bounds = metric_figure(name).bounds
            interval = score_interval(base_scores.get(name), scores.get(name), bounds=bounds)
            delta[name] = _metric_delta(value, base_value, interval)
    return delta


def figure_delta(value: float | None, base: float | None) -> dict[str, Any] | None:
    """Return `value` and `ratio` to `base`, None where either is null; no ratio to a 0."""
    if value is None or base is None:
        return None
    return {"value": exact_difference(value, base), "ratio": value / base if base else None}


def exact_difference(value: float, base: float) -> float:
    """Return value - base without the noise of binary fractions: 0.98 - 0.96 is 0.02.

    A gate at 0.02 must not miss because of a last bit; 12 decimals are far below any example.
    """
    difference = value - base
    # + 0.0 makes a negative zero a plain one.
    return difference if isinstance(difference, int) else round(difference, _DECIMALS) + 0.0


def score_interval(
    before: Sequence[float] | None,
    after: Sequence[float] | None,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
) -> Interval | None:
    """Return `paired_interval`, or None where the scores do not allow one."""
    if not before or not after or len(before) != len(after):
        return None
    if not all(map(math.isfinite, before)) or not all(map(math.isfinite, after)):
        return None
    return paired_interval(before, after, confidence, bounds)


def _metric_delta(value: float, base: float, interval: Interval | None) -> dict[str, Any]:
    limits = interval or Interval(value, None, None)
    return {"value": exact_difference(value, base), **limits.to_dict()}
