"""Every loss in numpy and float64, as `loss` of the report has it.

The definitions are tf-keras' own, and so those that training minimises (`shrink.engine.losses`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.losses import Loss, Value, ignored_class, loss_of
from shrink.base.types import Array
from shrink.engine.losses import user_targets
from shrink.engine.user_loss import check_finite, user_loss
from shrink.task.accuracy import (
    Sums,
    class_numbers,
    element_scores,
    is_one_hot,
    log_softmax,
    of_shape,
    probabilities,
    sum_up,
)

_EPSILON = 1e-7
_LEAST_NORM = 1e-12

Arguments = Mapping[str, Value]
Elements = Callable[[Array, Array, bool, Arguments], Array]
"""Outputs (n, ..., k), targets, whether the outputs are logits, and the loss's arguments, to the
loss of each element."""


def loss_sums(
    outputs: Array, targets: Array, key: str, *, from_logits: bool, mask: Array | None = None
) -> Sums:
    """Return the sum of each example's loss over its valid elements, and their number.

    Args:
        outputs, targets, from_logits, mask: as `shrink.task.accuracy.sums` takes them.
        key: of the loss.

    Raises:
        DataError: targets or a mask that do not match the outputs, or labels that are out of range.
        StageError: a user's function raises, or returns no loss.
    """
    loss = loss_of(key)
    outputs = np.asarray(outputs, np.float64)
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    targets = np.asarray(targets)
    if len(targets) != len(outputs):
        raise DataError(f"{len(outputs)} outputs for {len(targets)} targets")
    if loss.function is not None:
        return sum_up(_of_user(loss, outputs, targets), mask)
    if loss.name == "dice":
        # 1 - (2 Σpy + s) / (Σp + Σy + s) over an example's positions, (n,).
        of_classes = loss.kind == "classes"
        y = class_shares(outputs, targets) if of_classes else _values(outputs, targets)
        p = outputs
        if from_logits:
            p = probabilities(outputs) if of_classes else _sigmoid(outputs)
        if mask is not None:
            counts = mask.reshape(mask.shape + (1,) * (p.ndim - mask.ndim))
            # What is masked may be anything, also infinite.
            p, y = np.where(counts, p, 0.0), np.where(counts, y, 0.0)
        positions = tuple(range(1, p.ndim - 1))
        smooth = _number(loss.arguments["smooth"])
        both = p.sum(axis=positions) + y.sum(axis=positions)
        own = 1 - (2 * (p * y).sum(axis=positions) + smooth) / (both + smooth)
        values = np.asarray(own.mean(axis=-1))
        return Sums(values, np.ones(len(values)))
    return sum_up(ELEMENTS[loss.name](outputs, targets, from_logits, loss.arguments), mask)


def without_ignored(
    losses: Sequence[str], targets: Sequence[Array], masks: Sequence[Array | None]
) -> tuple[list[Array], list[Array | None]]:
    """Return targets and masks of outputs whose losses leave a class out: it counts for nothing.

    Args:
        losses: key of each output's loss.
        targets: class numbers (n, ...) or (n, ..., 1) where a class is left out.
        masks: bool, of the leading axes of each output, or None.

    Returns:
        Targets with class 0 where one is left out, and masks that do not count these elements.
    """
    kept, present = list(targets), list(masks)
    for index, key in enumerate(losses):
        left_out = ignored_class(key)
        if left_out is None:
            continue
        labels = np.asarray(targets[index])
        counts = labels != left_out
        kept[index] = np.where(counts, labels, 0)
        counts = counts[..., 0] if counts.ndim > 1 and counts.shape[-1] == 1 else counts
        before = masks[index]
        if before is not None:
            before = before.reshape(before.shape + (1,) * (counts.ndim - before.ndim))
            counts = counts & np.asarray(before, bool)
        present[index] = counts
    return kept, present


def _of_user(loss: Loss, outputs: Array, targets: Array) -> Array:
    """Return what a function says of float32 tensors, as in training: (n, ...), float64."""
    file, name = loss.function or ("", "")
    given = tf.constant(outputs, tf.float32)
    y = user_targets(tf.convert_to_tensor(targets), given, loss.kind or "values")
    values = user_loss(file, name)(y, given)
    check_finite(values, file, name, "outputs of the artifact")
    return np.asarray(values, np.float64)


def class_shares(outputs: Array, targets: Array) -> Array:
    """Return targets of classes as shares of each, float64 (n, ..., k)."""
    if is_one_hot(outputs, targets):
        return np.asarray(targets, np.float64)
    return np.asarray(np.eye(outputs.shape[-1])[class_numbers(outputs, targets)[..., 0]])


def _values(outputs: Array, targets: Array) -> Array:
    return of_shape(targets, outputs.shape).astype(np.float64)


def _known(name: str) -> Elements:
    return lambda outputs, targets, logits, arguments: element_scores(
        outputs, targets, name, logits
    )


def _categorical(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    shares = _smoothed_classes(class_shares(outputs, targets), arguments)
    return np.asarray(
        -(shares * (log_softmax(outputs) if logits else np.log(_clipped(outputs)))).sum(axis=-1)
    )


def _smoothed_classes(shares: Array, arguments: Arguments) -> Array:
    smoothing = _number(arguments["label_smoothing"])
    return shares * (1 - smoothing) + smoothing / shares.shape[-1]


def _clipped(outputs: Array) -> Array:
    """Return probabilities that add up to 1, as far from 0 and 1 as Keras keeps them."""
    total = np.maximum(outputs.sum(axis=-1, keepdims=True), _EPSILON)
    return np.asarray(np.clip(outputs / total, _EPSILON, 1 - _EPSILON))


def _binary(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    return element_scores(
        outputs, _smoothed_labels(outputs, targets, arguments), "binary_crossentropy", logits
    )


def _smoothed_labels(outputs: Array, targets: Array, arguments: Arguments) -> Array:
    smoothing = _number(arguments["label_smoothing"])
    return _values(outputs, targets) * (1 - smoothing) + 0.5 * smoothing


def _binary_focal(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    """Equations 4 and 5 of Lin et al. 2017."""
    wanted = _smoothed_labels(outputs, targets, arguments)
    p = _sigmoid(outputs) if logits else outputs
    right = wanted * p + (1 - wanted) * (1 - p)
    values = (1 - right) ** _number(arguments["gamma"]) * _entropy(outputs, wanted, logits)
    if arguments["apply_class_balancing"]:
        alpha = _number(arguments["alpha"])
        values = values * (wanted * alpha + (1 - wanted) * (1 - alpha))
    return np.asarray(values)


def _entropy(outputs: Array, wanted: Array, logits: bool) -> Array:
    if logits:
        return element_scores(outputs, wanted, "binary_crossentropy", logits)
    p = np.clip(outputs, _EPSILON, 1 - _EPSILON)
    # Keras adds its epsilon once more, within the logarithm.
    return np.asarray(-(wanted * np.log(p + _EPSILON) + (1 - wanted) * np.log(1 - p + _EPSILON)))


def _sigmoid(outputs: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0.0, -outputs)))


def _categorical_focal(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    shares = _smoothed_classes(class_shares(outputs, targets), arguments)
    p = _clipped(probabilities(outputs) if logits else outputs)
    alpha = np.asarray(arguments["alpha"], np.float64)
    if alpha.ndim and len(alpha) != outputs.shape[-1]:
        raise DataError(
            f"categorical_focal_crossentropy.alpha has {len(alpha)} numbers for "
            f"{outputs.shape[-1]} classes",
            subject="task.loss",
        )
    weights = alpha * (1 - p) ** _number(arguments["gamma"])
    return np.asarray(-(weights * shares * np.log(p)).sum(axis=-1))


def _kl_divergence(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    p = np.clip(probabilities(outputs) if logits else outputs, _EPSILON, 1.0)
    y = np.clip(class_shares(outputs, targets), _EPSILON, 1.0)
    return np.asarray((y * np.log(y / p)).sum(axis=-1))


def _hinge(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    y = _values(outputs, targets)
    return np.maximum(1 - np.where(y == 0, -1.0, y) * outputs, 0.0)


def _squared_hinge(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    return np.square(_hinge(outputs, targets, logits, arguments))


def _categorical_hinge(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    y = class_shares(outputs, targets)
    own, other = (y * outputs).sum(axis=-1), ((1 - y) * outputs).max(axis=-1)
    return np.maximum(other - own + 1, 0.0)


def _huber(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    """Equation of Huber 1964: squared up to `delta`, linear beyond."""
    delta = _number(arguments["delta"])
    apart = np.abs(outputs - _values(outputs, targets))
    return np.where(apart <= delta, 0.5 * apart**2, delta * (apart - 0.5 * delta))


def _log_cosh(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    x = outputs - _values(outputs, targets)
    return np.logaddexp(x, -x) - np.log(2.0)


def _cosine(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    return np.asarray(-(_unit(outputs) * _unit(_values(outputs, targets))).sum(axis=-1))


def _unit(values: Array) -> Array:
    squares = np.square(values).sum(axis=-1, keepdims=True)
    return np.asarray(values / np.sqrt(np.maximum(squares, _LEAST_NORM)))


def _poisson(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    return np.asarray(outputs - _values(outputs, targets) * np.log(outputs + _EPSILON))


def _relative(outputs: Array, targets: Array, logits: bool, arguments: Arguments) -> Array:
    y = _values(outputs, targets)
    return np.asarray(100 * np.abs(y - outputs) / np.maximum(np.abs(y), _EPSILON))


def _squared_logarithmic(
    outputs: Array, targets: Array, logits: bool, arguments: Arguments
) -> Array:
    one, other = (np.log1p(np.maximum(x, _EPSILON)) for x in (outputs, _values(outputs, targets)))
    return np.square(one - other)


def _number(value: Value) -> float:
    if isinstance(value, int | float):
        return float(value)
    raise TypeError(f"{value!r} is no number")


ELEMENTS: Mapping[str, Elements] = {
    "sparse_categorical_crossentropy": _known("sparse_categorical_crossentropy"),
    "categorical_crossentropy": _categorical,
    "binary_crossentropy": _binary,
    "mean_squared_error": _known("mean_squared_error"),
    "mean_absolute_error": _known("mean_absolute_error"),
    "binary_focal_crossentropy": _binary_focal,
    "categorical_focal_crossentropy": _categorical_focal,
    "kl_divergence": _kl_divergence,
    "hinge": _hinge,
    "squared_hinge": _squared_hinge,
    "categorical_hinge": _categorical_hinge,
    "huber": _huber,
    "log_cosh": _log_cosh,
    "cosine_similarity": _cosine,
    "poisson": _poisson,
    "mean_absolute_percentage_error": _relative,
    "mean_squared_logarithmic_error": _squared_logarithmic,
}
"""Those of `shrink.base.losses.LOSSES` that are means over elements."""
