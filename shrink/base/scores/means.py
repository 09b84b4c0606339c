"""Metrics that are means over elements or examples.

Equal outputs are common among integers. Of classes that tie for the highest output the first is
decided, as by `argmax` in NumPy, Keras and TFLite; `top_k` counts a tie for its last place by the
expected value of breaking it at random.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from shrink.base import losses
from shrink.base.arguments import Argument
from shrink.base.lazy import np
from shrink.base.scores.info import BINARY, CLASSES, LABELS, POSITIVE, REAL, UNIT, MetricInfo
from shrink.base.scores.output import Output
from shrink.base.types import Array

_TINY = sys.float_info.epsilon
"""What scikit-learn keeps probabilities from 0 and 1, and targets from 0, before it divides."""


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


_K = Argument("k", 5, "whole", is_open=True)
_MEAN_OF_LABELS = MetricInfo(True, LABELS, "fraction", UNIT, needs_logits=True)
_ERROR = MetricInfo(False, REAL, "none", POSITIVE)
METRICS: Mapping[str, MetricInfo] = {
    "accuracy": MetricInfo(True, LABELS, "fraction", UNIT, elements=accuracy),
    "binary_accuracy": MetricInfo(True, BINARY, "fraction", UNIT, elements=binary_accuracy),
    "top5_accuracy": MetricInfo(
        True, CLASSES, "fraction", UNIT, elements=lambda output: among_best(output, 5)
    ),
    **dict.fromkeys(
        ("sparse_categorical_crossentropy", "categorical_crossentropy"),
        MetricInfo(False, CLASSES, needs_logits=True, elements=_crossentropy),
    ),
    "binary_crossentropy": MetricInfo(
        False, BINARY, needs_logits=True, elements=_binary_crossentropy
    ),
    "mean_squared_error": MetricInfo(False, REAL, elements=_squared_error),
    "mean_absolute_error": MetricInfo(False, REAL, elements=_absolute_error),
    "top_k": replace(
        _MEAN_OF_LABELS,
        parameters=(_K,),
        elements=lambda output: among_best(output, int(output.number("k"))),
    ),
    "log_loss": MetricInfo(False, LABELS, range=POSITIVE, needs_logits=True, elements=_log_loss),
    "brier": MetricInfo(False, LABELS, range=(0.0, 2.0), needs_logits=True, elements=_brier),
    "pixel_accuracy": replace(_MEAN_OF_LABELS, elements=accuracy),
    "sequence_accuracy": replace(_MEAN_OF_LABELS, elements=accuracy),
    "mae": replace(_ERROR, elements=_absolute_error),
    "mape": MetricInfo(False, REAL, "fraction", POSITIVE, elements=_relative),
    "quantile_loss": replace(
        _ERROR,
        parameters=(Argument("quantile", 0.5, high=1.0, is_open=True),),
        elements=_quantile,
    ),
}
