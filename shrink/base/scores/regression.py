"""Metrics of regression that are not means: RMSE and the coefficient of determination."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shrink.base.lazy import np
from shrink.base.scores.info import POSITIVE, REAL, MetricInfo
from shrink.base.scores.output import Output
from shrink.base.scores.rule import Rows, Rule, Sums, Weighted, divided
from shrink.base.types import Array


def _keep(output: Output) -> Rows:
    return Rows(output.example, (output.elements(), output.element_targets()))


def _rmse(arguments: dict[str, object]) -> Rule:
    """Return the root of the mean squared error over all elements of an output."""

    def over(rows: Rows, examples: int) -> Weighted:
        outputs, targets = rows.values
        squares = np.square(outputs - targets)
        columns = np.stack([squares.sum(axis=1), np.full(len(squares), squares.shape[1])], axis=1)
        sums = Sums.of_rows(rows, columns, examples)
        return Weighted.by(sums, lambda totals: np.sqrt(divided(totals[:, 0], totals[:, 1])))

    return Rule(_keep, over, "no element counts", follows_nan=True)


def _r2(arguments: dict[str, object]) -> Rule:
    """Return 1 - residual / total sum of squares, the mean over the numbers of the last axis."""

    def over(rows: Rows, examples: int) -> Weighted:
        outputs, targets = rows.values
        width = outputs.shape[1]
        # Far from 0, sums of squares would lose the variance.
        centred = targets - targets.mean(axis=0)
        errors = np.square(outputs - targets)
        ones = np.ones((len(targets), 1))
        columns = np.hstack([ones, centred, np.square(centred), errors])

        def of(sums: Array) -> Array:
            count, values = sums[:, :1], sums[:, 1:]
            first, second, residual = np.split(values, [width, 2 * width], axis=1)
            total = second - divided(np.square(first), count)
            constant = np.isnan(total) | (total <= 1e-12 * second)
            share = divided(residual, np.where(constant, 0.0, total))
            return np.asarray((1 - share).mean(axis=1))

        return Weighted.by(Sums.of_rows(rows, columns, examples), of, 3 * width)

    return Rule(_keep, over, "a target is the same for all examples", follows_nan=True)


METRICS: Mapping[str, MetricInfo] = {
    "rmse": MetricInfo(False, REAL, "none", POSITIVE, rule=_rmse),
    "r2": MetricInfo(True, REAL, "none", (-math.inf, 1.0), rule=_r2),
}
