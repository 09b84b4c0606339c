"""Every loss in NumPy and float64, for the `loss` of the report.

The definitions are tf-keras' own, and so those that training minimises (`shrink.engine.losses`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from shrink.base.errors import DataError
from shrink.base.losses import ignored_class, loss_of
from shrink.base.types import Array
from shrink.task.means import (
    absolute_error,
    binary_crossentropy,
    crossentropy,
    logarithms,
    squared_error,
)
from shrink.task.output import EPSILON, Output, Sums, output_of, sigmoid, softmax, sum_up
from shrink.tflite.lazy import tf

_LEAST_NORM = 1e-12


def loss_sums(
    outputs: Array, targets: Array, key: str, *, from_logits: bool, mask: Array | None = None
) -> Sums:
    """Return the sum of each example's loss over its valid elements, and their number.

    Args:
        outputs, targets, from_logits, mask: see `Output`.
        key: of the loss.

    Raises:
        DataError: targets or a mask that do not match the outputs, or labels that are out of range.
        StageError: a user's function raises, or returns no loss.
    """
    loss = loss_of(key)
    given = output_of(outputs, targets, mask=mask, from_logits=from_logits).given(loss.arguments)
    if loss.function is not None:
        from shrink.engine.losses import user_targets
        from shrink.engine.user_loss import check_finite, user_loss

        # What a function says of float32 tensors, as in training: (n, ...), float64.
        file, name = loss.function
        tensor = tf.constant(given.outputs, tf.float32)
        y = user_targets(tf.convert_to_tensor(given.targets), tensor, loss.kind or "values")
        values = user_loss(file, name)(y, tensor)
        check_finite(values, file, name, "outputs of the artifact")
        return sum_up(np.asarray(values, np.float64), mask)
    if loss.name == "dice":
        # 1 - (2 Σpy + s) / (Σp + Σy + s) over an example's positions, (n,).
        of_classes = loss.kind == "classes"
        y, p = given.shares if of_classes else given.values, given.outputs
        if from_logits:
            p = softmax(p) if of_classes else sigmoid(p)
        if mask is not None:
            counts = mask.reshape(mask.shape + (1,) * (p.ndim - mask.ndim))
            # What is masked may be anything, also infinite.
            p, y = np.where(counts, p, 0.0), np.where(counts, y, 0.0)
        positions = tuple(range(1, p.ndim - 1))
        smooth = given.number("smooth")
        both = p.sum(axis=positions) + y.sum(axis=positions)
        own = 1 - (2 * (p * y).sum(axis=positions) + smooth) / (both + smooth)
        return Sums(np.asarray(own.mean(axis=-1)), np.ones(len(p)))
    return sum_up(ELEMENTS[loss.name](given), mask)


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


def _smoothed_classes(given: Output) -> Array:
    smoothing, shares = given.number("label_smoothing"), given.shares
    return shares * (1 - smoothing) + smoothing / shares.shape[-1]


def _smoothed_labels(given: Output) -> Array:
    smoothing = given.number("label_smoothing")
    return given.values * (1 - smoothing) + 0.5 * smoothing


def _categorical(given: Output) -> Array:
    return np.asarray(-(_smoothed_classes(given) * logarithms(given)).sum(axis=-1))


def _binary(given: Output) -> Array:
    return binary_crossentropy(replace(given, targets=_smoothed_labels(given)))


def _binary_focal(given: Output) -> Array:
    """Equations 4 and 5 of Lin et al. 2017."""
    wanted = _smoothed_labels(given)
    p = given.outputs
    if given.from_logits:
        p, entropy = sigmoid(p), _binary(given)
    else:
        # Keras adds its epsilon once more, within the logarithm.
        q = np.clip(p, EPSILON, 1 - EPSILON)
        entropy = -(wanted * np.log(q + EPSILON) + (1 - wanted) * np.log(1 - q + EPSILON))
    right = wanted * p + (1 - wanted) * (1 - p)
    values = (1 - right) ** given.number("gamma") * entropy
    if given.arguments["apply_class_balancing"]:
        alpha = given.number("alpha")
        values = values * (wanted * alpha + (1 - wanted) * (1 - alpha))
    return np.asarray(values)


def _categorical_focal(given: Output) -> Array:
    shares = _smoothed_classes(given)
    p = np.exp(logarithms(given)).clip(EPSILON, 1 - EPSILON)
    alpha = np.asarray(given.arguments["alpha"], np.float64)
    if alpha.ndim and len(alpha) != p.shape[-1]:
        raise DataError(
            f"categorical_focal_crossentropy.alpha has {len(alpha)} numbers for {p.shape[-1]} "
            "classes",
            subject="task.loss",
        )
    return np.asarray(-(alpha * (1 - p) ** given.number("gamma") * shares * np.log(p)).sum(axis=-1))


def _kl_divergence(given: Output) -> Array:
    p = softmax(given.outputs) if given.from_logits else given.outputs
    p, y = np.clip(p, EPSILON, 1.0), np.clip(given.shares, EPSILON, 1.0)
    return np.asarray((y * np.log(y / p)).sum(axis=-1))


def _hinge(given: Output) -> Array:
    y = given.values
    return np.maximum(1 - np.where(y == 0, -1.0, y) * given.outputs, 0.0)


def _categorical_hinge(given: Output) -> Array:
    y, outputs = given.shares, given.outputs
    own, other = (y * outputs).sum(axis=-1), ((1 - y) * outputs).max(axis=-1)
    return np.maximum(other - own + 1, 0.0)


def _huber(given: Output) -> Array:
    """Equation of Huber 1964: squared up to `delta`, linear beyond."""
    delta, apart = given.number("delta"), np.abs(given.outputs - given.values)
    return np.where(apart <= delta, 0.5 * apart**2, delta * (apart - 0.5 * delta))


def _log_cosh(given: Output) -> Array:
    x = given.outputs - given.values
    return np.logaddexp(x, -x) - np.log(2.0)


def _cosine(given: Output) -> Array:
    one, other = (
        x / np.sqrt(np.maximum(np.square(x).sum(axis=-1, keepdims=True), _LEAST_NORM))
        for x in (given.outputs, given.values)
    )
    return np.asarray(-(one * other).sum(axis=-1))


def _relative(given: Output) -> Array:
    y = given.values
    return np.asarray(100 * np.abs(y - given.outputs) / np.maximum(np.abs(y), EPSILON))


def _squared_logarithmic(given: Output) -> Array:
    one, other = (np.log1p(np.maximum(x, EPSILON)) for x in (given.outputs, given.values))
    return np.square(one - other)


ELEMENTS: Mapping[str, Callable[[Output], Array]] = {
    "sparse_categorical_crossentropy": crossentropy,
    "categorical_crossentropy": _categorical,
    "binary_crossentropy": _binary,
    "mean_squared_error": squared_error,
    "mean_absolute_error": absolute_error,
    "binary_focal_crossentropy": _binary_focal,
    "categorical_focal_crossentropy": _categorical_focal,
    "kl_divergence": _kl_divergence,
    "hinge": _hinge,
    "squared_hinge": lambda given: np.square(_hinge(given)),
    "categorical_hinge": _categorical_hinge,
    "huber": _huber,
    "log_cosh": _log_cosh,
    "cosine_similarity": _cosine,
    "poisson": lambda given: given.outputs - given.values * np.log(given.outputs + EPSILON),
    "mean_absolute_percentage_error": _relative,
    "mean_squared_logarithmic_error": _squared_logarithmic,
}
"""Those of `shrink.base.losses.LOSSES` that are means over elements: the loss of each element."""
