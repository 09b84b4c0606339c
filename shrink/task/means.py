"""Metrics that are means over elements or examples, of one output and some examples."""

from __future__ import annotations

import numpy as np

from shrink.base.errors import RecipeError
from shrink.base.metrics import METRICS, metric_of
from shrink.base.scores.output import Sums, output_of, sum_up
from shrink.base.types import Array


def sums(
    outputs: Array,
    targets: Array,
    metric: str,
    *,
    from_logits: bool,
    mask: Array | None = None,
    loss: str = "",
) -> Sums:
    """Return the sum of each example's scores over its valid elements, and their number.

    Args:
        outputs, targets, from_logits, mask, loss: see `Output`.
        metric: the key of a metric that is a mean.

    Raises:
        RecipeError: no such metric.
        DataError: targets or a mask that do not match the outputs, or labels that are out of range.
    """
    known = metric_of(metric)
    if known is None or known.info.elements is None:
        means = sorted(name for name, info in METRICS.items() if info.is_mean)
        raise RecipeError(f"there is no metric {metric!r}", hint=f"one of {', '.join(means)}")
    output = output_of(outputs, targets, mask=mask, from_logits=from_logits, loss=loss)
    values = known.info.elements(output.given(known.arguments))
    if known.name == "sequence_accuracy":
        # The chance that all valid elements of an example are right; without one it is out.
        counts = (sum_up(values, mask).valid > 0).astype(np.float64)
        kept = values.reshape(output.count, -1)
        if mask is not None:
            kept = np.where(output.valid.reshape(output.count, -1), kept, 1.0)
        return Sums(kept.prod(axis=1) * counts, counts)
    return sum_up(values, mask)


def count_ties(outputs: Array, mask: Array | None) -> tuple[int, int]:
    """Return for how many elements several classes have the highest output, and their number.

    Args:
        outputs: (n, ..., classes).
        mask: bool, of the leading axes of the outputs; what is not set does not count.
    """
    tied = (outputs == outputs.max(axis=-1, keepdims=True)).sum(axis=-1) > 1
    counted = sum_up(tied.astype(np.float64), mask)
    return int(counted.values.sum()), int(counted.valid.sum())
