"""Calibration of probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shrink.base.arguments import Argument
from shrink.base.lazy import np
from shrink.base.scores.confusion import decisions
from shrink.base.scores.info import LABELS, UNIT, MetricInfo
from shrink.base.scores.output import Output
from shrink.base.scores.rule import (
    Rows,
    Rule,
    Sums,
    Weighted,
    divided,
)
from shrink.base.types import Array

_BIASED = "no interval: few examples bias this error upwards, and resamples bias it further"


def _confidence(output: Output) -> Array:
    """Return the probability of what was decided, (m, labels)."""
    p = output.probabilities.reshape(output.count, -1, output.outputs.shape[-1])[output.valid]
    if output.is_single or output.several_labels:
        return np.maximum(p, 1 - p)
    return p.max(axis=1, keepdims=True)


def _expected_calibration_error(arguments: dict[str, object]) -> Rule:
    """Return the mean distance of confidence and accuracy over bins of confidence.

    Bins are equally wide, open below (Guo et al. 2017, equation 3).
    """
    bins = int(float(str(arguments["bins"])))

    def keep(output: Output) -> Rows:
        decided, true = decisions(output)
        if output.several_labels:
            right = decided * true + (1 - decided) * (1 - true)
        else:
            right = (decided * true).sum(axis=1, keepdims=True)
        return Rows(output.example, (_confidence(output), right))

    def over(rows: Rows, examples: int) -> Weighted:
        confidence, right = rows.values
        place = np.clip(np.ceil(np.nan_to_num(confidence) * bins).astype(int) - 1, 0, bins - 1)
        apart, count = np.zeros((len(place), bins)), np.full((len(place), 1), place.shape[1])
        own = np.arange(len(place))
        for label in range(place.shape[1]):
            apart[own, place[:, label]] += right[:, label] - confidence[:, label]
        sums = Sums.of_rows(rows, np.hstack([apart, count]), examples)

        def of(totals: Array) -> Array:
            return divided(np.abs(totals[:, :-1]).sum(axis=1), totals[:, -1])

        return replace(Weighted.by(sums, of), why=_BIASED)

    return Rule(keep, over, "no element counts", follows_nan=True)


METRICS: Mapping[str, MetricInfo] = {
    "expected_calibration_error": MetricInfo(
        False,
        LABELS,
        "fraction",
        UNIT,
        (Argument("bins", 15, "whole", is_open=True),),
        needs_logits=True,
        rule=_expected_calibration_error,
    )
}
