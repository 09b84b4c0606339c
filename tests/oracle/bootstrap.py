"""Intervals by drawing the examples again: no formula is shared with the report's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.oracle.metrics import Metric

DRAWS = 1000
ENOUGH = 100
"""Examples below which percentiles of a bootstrap are too narrow to judge a width by."""
DISCORDANT = 15
"""Examples that have to speak for either side before a proportion's width is comparable."""


@dataclass(frozen=True)
class Interval:
    """A percentile interval.

    Attributes:
        judges: whether the examples are enough for its width to be compared.
    """

    low: float
    high: float
    judges: bool


def interval(metric: Metric, base: Metric | None = None, level: float = 0.95) -> Interval:
    """Return the interval of a metric, or of its difference to `base` over the same examples."""
    n = len(metric.parts[0].counts)
    rows = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), DRAWS)
    rows = rows[[all((r @ p.counts) > 0 for p in metric.parts) for r in rows]]
    values = metric.value(rows) - (0 if base is None else base.value(rows))
    tail = 50 * (1 - level)
    low, high = (float(v) for v in np.percentile(values, [tail, 100 - tail]))
    return Interval(low, high, n >= ENOUGH and _spread_enough(metric, base))


def _spread_enough(metric: Metric, base: Metric | None) -> bool:
    """Tell whether enough examples lie on either side, so that percentiles mean something."""
    before = base.parts if base is not None else [None] * len(metric.parts)
    differs, seldom = [], []
    for part, other in zip(metric.parts, before, strict=True):
        each = part.sums / np.maximum(part.counts, 1)
        if other is not None:
            each = each - other.sums / np.maximum(other.counts, 1)
        differs.append(int((np.abs(each) > 1e-9).sum()))
        seldom.append(int((np.abs(each - np.median(each)) > 1e-9).sum()))
    enough = min(seldom) >= DISCORDANT
    return enough if base is None else enough and min(differs) >= DISCORDANT
