"""Intervals by drawing the examples again: no formula is shared with the report's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from tests.oracle.metrics import Metric
from tests.oracle.whole import Whole

DRAWS = 2000
BEYOND = 10
ENOUGH = 100
"""Examples below which percentiles of a bootstrap are too narrow to judge a width by."""
SPEAKING = 15
"""Examples that have to make up a variance before a width is comparable: the effective number."""
ROUNDING = 1e-4
"""Deviations below this, relative to the scores' own, may be those of float32 kernels."""


@dataclass(frozen=True)
class Interval:
    """Percentiles of a mean; of any other metric the limits of BCa, which a report has, too.

    Attributes:
        widest: width of this one, or, of a mean, of the studentized bootstrap's, which covers where
            a few examples make the difference (Efron and Tibshirani 1993, chapter 12).
        judges: whether the examples are enough for its width to be compared.
        judges_ends: whether each end can be compared: BCa of draws of its own moves both by chance,
            and by much where fewer than `BEYOND` draws lie beyond it.
    """

    low: float
    high: float
    widest: float
    judges: bool
    judges_ends: bool = False


def interval(
    metric: Metric | Whole, base: Metric | Whole | None = None, level: float = 0.95
) -> Interval:
    """Return the interval of a metric, or of its difference to `base` over the same examples."""
    n = metric.examples
    rows = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), DRAWS)
    rows = rows[metric.defined(rows)]
    values = metric.value(rows) - (0 if base is None else base.value(rows))
    judges = n >= ENOUGH and _spread_enough(metric, base)
    if isinstance(metric, Whole):
        levels = _bca_levels(metric, base, values, level)
        low, high = (float(end) for end in np.quantile(values, levels))
        within = min(levels[0], 1 - levels[1]) >= BEYOND / DRAWS
        return Interval(low, high, high - low, judges, judges and within)
    tail = 50 * (1 - level)
    low, high = (float(v) for v in np.percentile(values, [tail, 100 - tail]))
    return Interval(
        low, high, max(high - low, _studentized_width(metric, base, rows, tail)), judges
    )


def _studentized_width(
    metric: Metric, base: Metric | Whole | None, rows: np.ndarray, tail: float
) -> float:
    values = metric.influence() - (0 if base is None else base.influence())
    n = len(values)
    means = rows @ values / n
    deviations = np.sqrt(np.maximum(rows @ values**2 / n - means**2, 0))
    known = deviations > 0
    if not known.any():
        return 0.0
    low, high = np.percentile(means[known] / deviations[known], [tail, 100 - tail])
    return float((high - low) * values.std())


def _bca_levels(
    metric: Whole, base: Metric | Whole | None, values: np.ndarray, level: float
) -> tuple[float, float]:
    """Return the quantiles that are bias corrected and accelerated (the same book, chapter 14)."""
    value = float(metric.value()[0]) - (0 if base is None else float(base.value()[0]))
    share = np.mean(values < value) + np.mean(values == value) / 2
    moved = norm.ppf(np.clip(share, 0.5 / len(values), 1 - 0.5 / len(values)))
    influence = metric.influence() - (0 if base is None else base.influence())
    influence = influence - influence.mean()
    squares = float((influence**2).sum())
    acceleration = float((influence**3).sum()) / (6 * squares**1.5) if squares > 0 else 0.0
    z = moved + norm.ppf([(1 - level) / 2, (1 + level) / 2])
    low, high = norm.cdf(moved + z / (1 - acceleration * z))
    return float(low), float(high)


def _spread_enough(metric: Metric | Whole, base: Metric | Whole | None) -> bool:
    """Tell whether enough examples make up the variance, so that percentiles mean something.

    The effective number is that of Kish: of equal deviations their number, of one that is larger
    than all others 1.
    """
    own = metric.influence()
    values = own if base is None else own - base.influence()
    if values.std() <= ROUNDING * own.std():
        return False
    squares = (values - values.mean()) ** 2
    return bool(squares.sum() ** 2 / (squares**2).sum() >= SPEAKING)
