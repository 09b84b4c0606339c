"""Metrics that are means over elements or examples.

Equal outputs are common among integers. Of classes that tie for the highest output the first is
decided, as by `argmax` in NumPy, Keras and TFLite; `top_k` counts a tie for its last place by the
expected value of breaking it at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shrink.base import losses
from shrink.base.errors import RecipeError
from shrink.base.metrics import metric_of
from shrink.base.types import Array
from shrink.task.output import Output, Sums, output_of, sum_up

_TINY = float(np.finfo(np.float64).eps)
"""What scikit-learn keeps probabilities from 0 and 1, and targets from 0, before it divides."""


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
    if known is None or known.name not in MEANS:
        raise RecipeError(
            f"there is no metric {metric!r}", hint=f"one of {', '.join(sorted(MEANS))}"
        )
    output = output_of(outputs, targets, mask=mask, from_logits=from_logits, loss=loss)
    values = MEANS[known.name](output.given(known.arguments))
    if known.name == "sequence_accuracy":
        # The chance that all valid elements of an example are right; without one it is out.
        counts = (sum_up(values, mask).valid > 0).astype(np.float64)
        kept = values.reshape(output.count, -1)
        if mask is not None:
            kept = np.where(output.valid.reshape(output.count, -1), kept, 1.0)
        return Sums(kept.prod(axis=1) * counts, counts)
    return sum_up(values, mask)


def accuracy(output: Output) -> Array:
    """Return 1 for elements whose class is right, (n, ...); a NaN is never the right answer."""
    if output.is_single:
        return binary_accuracy(output)
    hits = output.outputs.argmax(axis=-1) == output.numbers[..., 0]
    return (hits & ~np.isnan(output.outputs).any(axis=-1)).astype(np.float64)


def binary_accuracy(output: Output) -> Array:
    """Score every label of an example for itself, as for several labels at once."""
    positive = output.outputs > (0.0 if output.from_logits else 0.5)
    right = positive == (output.values > 0.5)
    return (right & ~np.isnan(output.outputs)).astype(np.float64)


def count_ties(outputs: Array, mask: Array | None) -> tuple[int, int]:
    """Return for how many elements several classes have the highest output, and their number.

    Args:
        outputs: (n, ..., classes).
        mask: bool, of the leading axes of the outputs; what is not set does not count.
    """
    tied = (outputs == outputs.max(axis=-1, keepdims=True)).sum(axis=-1) > 1
    counted = sum_up(tied.astype(np.float64), mask)
    return int(counted.values.sum()), int(counted.valid.sum())


def among_best(output: Output, k: int) -> Array:
    """Return the chance that the own class is among the `k` best, (n, ...), ties broken at random.

    Places that better classes leave are shared by all that have the own class' value.
    """
    outputs = output.outputs
    own = np.take_along_axis(outputs, output.numbers, axis=-1)
    better = (outputs > own).sum(axis=-1)
    equal = np.maximum((outputs == own).sum(axis=-1), 1)
    chance = np.clip((k - better) / equal, 0.0, 1.0)
    return np.where(np.isnan(outputs).any(axis=-1), 0.0, chance)


def _crossentropy(output: Output, epsilon: float = losses.EPSILON) -> Array:
    """Return the cross-entropy of one class among several, (n, ...)."""
    y = output.shares if output.is_one_hot else output.numbers
    x, logits = output.outputs, output.from_logits
    return np.asarray(losses.sparse_categorical_crossentropy(np, y, x, logits, epsilon=epsilon))


def _binary_crossentropy(output: Output, epsilon: float = losses.EPSILON) -> Array:
    """Return the cross-entropy of each label for itself, (n, ..., k)."""
    y, x, logits = output.values, output.outputs, output.from_logits
    return np.asarray(losses.binary_crossentropy(np, y, x, logits, epsilon=epsilon))


def _log_loss(output: Output) -> Array:
    labels = output.is_single or output.several_labels
    return (_binary_crossentropy if labels else _crossentropy)(output, epsilon=_TINY)


def _brier(output: Output) -> Array:
    """Return the squared error of probabilities (Brier 1950), summed over several classes."""
    if output.is_single or output.several_labels:
        return np.square(output.probabilities - output.values)
    return np.square(output.probabilities - output.shares).sum(axis=-1)


def _squared_error(output: Output) -> Array:
    return np.asarray(losses.mean_squared_error(np, output.values, output.outputs))


def _absolute_error(output: Output) -> Array:
    return np.asarray(losses.mean_absolute_error(np, output.values, output.outputs))


def _relative(output: Output) -> Array:
    return _absolute_error(output) / np.maximum(np.abs(output.values), _TINY)


def _quantile(output: Output) -> Array:
    """Return the pinball loss of a predicted quantile (Koenker and Bassett 1978)."""
    share, short = output.number("quantile"), output.values - output.outputs
    return np.maximum(share * short, (share - 1) * short)


MEANS: Mapping[str, Callable[[Output], Array]] = {
    "accuracy": accuracy,
    "binary_accuracy": binary_accuracy,
    "pixel_accuracy": accuracy,
    "sequence_accuracy": accuracy,
    "top5_accuracy": lambda output: among_best(output, 5),
    "top_k": lambda output: among_best(output, int(output.number("k"))),
    "sparse_categorical_crossentropy": _crossentropy,
    "categorical_crossentropy": _crossentropy,
    "binary_crossentropy": _binary_crossentropy,
    "log_loss": _log_loss,
    "brier": _brier,
    "mean_squared_error": _squared_error,
    "mean_absolute_error": _absolute_error,
    "mae": _absolute_error,
    "mape": _relative,
    "quantile_loss": _quantile,
}
"""Those of `shrink.base.metrics.METRICS` that are means: the metric of each element, (n, ...)."""
