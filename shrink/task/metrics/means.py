"""Metrics that are means over elements or examples: probabilities, classes and real targets.

Those that training follows are in `shrink.task.accuracy`; these are of the report alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from shrink.base.metrics import metric_of
from shrink.base.types import Array
from shrink.task import accuracy
from shrink.task.accuracy import Sums, sum_up
from shrink.task.metrics.rule import Seen, normalised, seen

_EPSILON = float(np.finfo(np.float64).eps)
"""Probabilities are kept this far from 0 and 1 before their logarithm, as in scikit-learn."""

Elements = Callable[[Seen, Mapping[str, object]], Array]
"""What an output gave, and the metric's arguments, to the metric of each element, (n, ...)."""


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
        outputs, targets, from_logits, mask: as `shrink.task.accuracy.sums` takes them.
        metric: the key of a metric that is a mean.
        loss: of the output, which says whether its numbers are labels of their own.

    Raises:
        RecipeError: no such metric.
        DataError: targets or a mask that do not match the outputs, or labels that are out of range.
    """
    known = metric_of(metric)
    if known is None or known.name not in MEANS:
        return accuracy.sums(outputs, targets, metric, from_logits=from_logits, mask=mask)
    one = seen(outputs, targets, mask=mask, from_logits=from_logits, loss=loss)
    values = MEANS[known.name](one, known.arguments)
    if known.name == "sequence_accuracy":
        # The chance that all valid elements of an example are right; without one it is out.
        valid = sum_up(values, mask).valid
        kept = values
        if mask is not None:
            rest = (1,) * (values.ndim - mask.ndim)
            kept = np.where(mask.reshape(mask.shape + rest), values, 1.0)
        counts = (valid > 0).astype(np.float64)
        return Sums(kept.reshape(len(values), -1).prod(axis=1) * counts, counts)
    return sum_up(values, mask)


def _right(one: Seen, arguments: Mapping[str, object]) -> Array:
    return accuracy.element_scores(one.outputs, one.targets, "accuracy", one.from_logits)


def _top_k(one: Seen, arguments: Mapping[str, object]) -> Array:
    return accuracy.among_best(one.outputs, one.targets, int(str(arguments["k"]).split(".")[0]))


def _log_loss(one: Seen, arguments: Mapping[str, object]) -> Array:
    if one.is_single or one.several_labels:
        wanted = accuracy.of_shape(one.targets, one.outputs.shape).astype(np.float64)
        if one.from_logits:
            return np.logaddexp(0.0, one.outputs) - wanted * one.outputs
        p = np.clip(one.outputs, _EPSILON, 1 - _EPSILON)
        return -(wanted * np.log(p) + (1 - wanted) * np.log1p(-p))
    if one.from_logits:
        logs = accuracy.log_softmax(one.outputs)
    else:
        logs = np.log(np.clip(normalised(one.outputs), _EPSILON, 1 - _EPSILON))
    return -(logs * _one_hot(one)).sum(axis=-1)


def _brier(one: Seen, arguments: Mapping[str, object]) -> Array:
    """Return the squared error of probabilities (Brier 1950), summed over several classes."""
    if one.is_single or one.several_labels:
        wanted = accuracy.of_shape(one.targets, one.outputs.shape)
        p = 1 / (1 + np.exp(-one.outputs)) if one.from_logits else one.outputs
        return np.square(p - wanted)
    p = accuracy.probabilities(one.outputs) if one.from_logits else normalised(one.outputs)
    return np.square(p - _one_hot(one)).sum(axis=-1)


def _one_hot(one: Seen) -> Array:
    if accuracy.is_one_hot(one.outputs, one.targets):
        return one.targets.astype(np.float64)
    return np.eye(one.outputs.shape[-1])[accuracy.class_numbers(one.outputs, one.targets)[..., 0]]


def _absolute(one: Seen, arguments: Mapping[str, object]) -> Array:
    return np.abs(one.outputs - accuracy.of_shape(one.targets, one.outputs.shape))


def _relative(one: Seen, arguments: Mapping[str, object]) -> Array:
    """Return errors relative to the targets, of which the least is scikit-learn's 2.2e-16."""
    targets = accuracy.of_shape(one.targets, one.outputs.shape).astype(np.float64)
    return np.abs(one.outputs - targets) / np.maximum(np.abs(targets), _EPSILON)


def _quantile(one: Seen, arguments: Mapping[str, object]) -> Array:
    """Return the pinball loss of a predicted quantile (Koenker and Bassett 1978)."""
    share = float(str(arguments["quantile"]))
    short = accuracy.of_shape(one.targets, one.outputs.shape) - one.outputs
    return np.maximum(share * short, (share - 1) * short)


MEANS: Mapping[str, Elements] = {
    "top_k": _top_k,
    "log_loss": _log_loss,
    "brier": _brier,
    "pixel_accuracy": _right,
    "sequence_accuracy": _right,
    "mae": _absolute,
    "mape": _relative,
    "quantile_loss": _quantile,
}
"""Those of `shrink.base.metrics.METRICS` that are means and that training does not follow."""
