"""All metrics of the report, in numpy, and how scores of elements are pooled.

Equal outputs are common among integers. Of classes that tie for the highest output the first is
decided, as by `argmax` in NumPy, Keras and TFLite; `top_k` counts a tie for its last place by the
expected value of breaking it at random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from shrink.base.errors import DataError, RecipeError
from shrink.base.losses import Value
from shrink.base.types import Array


@dataclass(frozen=True)
class Sums:
    """What examples hold of one metric of one output.

    Attributes:
        values: sum of the metric over an example's valid elements, (n,).
        valid: how many these are, (n,).
    """

    values: Array
    valid: Array


@dataclass(frozen=True)
class Pooled:
    """A metric of all examples.

    Attributes:
        value: the mean over the valid elements of all examples.
        scores: each example's part, (n,); their mean is `value`.
    """

    value: float
    scores: Array


def sum_up(values: Array, mask: Array | None) -> Sums:
    """Return each example's sum over its valid elements, and their number.

    Args:
        values: of each element, (n, ...).
        mask: bool, of the leading axes of `values`; None where every element counts.

    Raises:
        DataError: the mask has not the shape of the values.
    """
    valid = np.ones(values.shape)
    if mask is not None:
        if mask.shape != values.shape[: mask.ndim]:
            raise DataError(f"a mask of shape {mask.shape} does not suit {values.shape}")
        rest = (1,) * (values.ndim - mask.ndim)
        valid = np.broadcast_to(mask.reshape(mask.shape + rest), values.shape).astype(np.float64)
    count = len(values)
    # What is masked may be anything, also infinite.
    present = np.where(valid > 0, values, 0.0)
    return Sums(present.reshape(count, -1).sum(axis=1), valid.reshape(count, -1).sum(axis=1))


def pool(parts: Sequence[Sums]) -> Pooled:
    """Return the mean over all valid elements of all examples, as Keras' `evaluate` has it.

    Such a ratio of sums is no mean over examples. An example's score is its linearised part,
    `ratio + (sum - ratio * valid) / mean(valid)` (the infinitesimal jackknife): the mean of these
    is the ratio, and their standard error, also that of paired differences, the ratio's own.
    Where all examples have as many elements it is simply the example's own mean.

    Args:
        parts: of the examples, batch by batch.

    Raises:
        DataError: no element of any example counts.
    """
    values = np.concatenate([part.values for part in parts])
    valid = np.concatenate([part.valid for part in parts])
    total = valid.sum()
    if not total:
        raise DataError(
            "no element of any example counts: the model masks all of them",
            hint="shrink data check; look for padding in place of examples",
        )
    if np.all(valid == valid[0]):
        scores = values / valid[0]
        return Pooled(float(np.mean(scores)), scores)
    ratio = values.sum() / total
    scores = ratio + (values - ratio * valid) * (len(valid) / total)
    return Pooled(float(ratio), scores)


# Keras keeps probabilities this far from 0 and 1 before it takes a logarithm.
_EPSILON = 1e-7


@dataclass(frozen=True)
class Output:
    """What an output gave for some examples, what it should have given, and settings of a loss.

    Attributes:
        outputs: float64 (n, ..., k).
        targets: labels (n, ...) or (n, ..., 1), or the outputs' shape.
        from_logits: whether the outputs of a classifier are logits, not probabilities.
        arguments: of the loss.
    """

    outputs: Array
    targets: Array
    from_logits: bool = False
    arguments: Mapping[str, Value] = field(default_factory=dict)

    def number(self, name: str) -> float:
        """Return an argument of the loss that is a number."""
        value = self.arguments[name]
        if isinstance(value, int | float):
            return float(value)
        raise TypeError(f"{value!r} is no number")

    @property
    def values(self) -> Array:
        """Targets of the outputs' shape, float64."""
        return of_shape(self.targets, self.outputs.shape).astype(np.float64)

    @property
    def shares(self) -> Array:
        """Targets as shares of each class, float64 (n, ..., k)."""
        if is_one_hot(self.outputs, self.targets):
            return np.asarray(self.targets, np.float64)
        numbers = class_numbers(self.outputs, self.targets)[..., 0]
        return np.asarray(np.eye(self.outputs.shape[-1])[numbers])

    @property
    def logarithms(self) -> Array:
        """Logarithms of the probabilities of classes, made to add up to 1."""
        if self.from_logits:
            return log_softmax(self.outputs)
        return np.asarray(np.log(clipped(self.outputs)))


def output_of(
    outputs: Array,
    targets: Array,
    from_logits: bool,
    arguments: Mapping[str, Value] | None = None,
) -> Output:
    """Return what an output gave, in float64 and with an axis for its numbers.

    Raises:
        DataError: other numbers of outputs and targets.
    """
    outputs = np.asarray(outputs, np.float64)
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    targets = np.asarray(targets)
    if len(targets) != len(outputs):
        raise DataError(f"{len(outputs)} outputs for {len(targets)} targets")
    return Output(outputs, targets, from_logits, arguments or {})


def clipped(outputs: Array) -> Array:
    """Return probabilities that add up to 1, as far from 0 and 1 as Keras keeps them."""
    total = np.maximum(outputs.sum(axis=-1, keepdims=True), _EPSILON)
    return np.asarray(np.clip(outputs / total, _EPSILON, 1 - _EPSILON))


def scores(outputs: Array, targets: Array, metric: str, *, from_logits: bool) -> Array:
    """Return each example's score, float64 (n,); the mean over examples is the metric.

    Axes between the first and the classes (pixels, time) are averaged within an example. The
    arguments and errors are those of `sums`.
    """
    totals = sums(outputs, targets, metric, from_logits=from_logits)
    return np.asarray(totals.values / totals.valid)


def sums(
    outputs: Array, targets: Array, metric: str, *, from_logits: bool, mask: Array | None = None
) -> Sums:
    """Return the sum of each example's scores over its valid elements, and their number.

    Args:
        outputs: what the model gave, (n, ..., classes), or (n,) and (n, 1) for a single number.
        targets: labels (n, ...) or (n, ..., 1), or the outputs' shape for one-hot labels,
            probabilities, and real targets.
        metric: a name of `shrink.base.figures.METRICS`.
        from_logits: whether the outputs of a classifier are logits, not probabilities.
        mask: bool, of the leading axes of the outputs; what is not set does not count.

    Raises:
        RecipeError: no such metric.
        DataError: targets or a mask that do not match the outputs, or labels that are out of range.
    """
    return sum_up(element_scores(outputs, targets, metric, from_logits), mask)


def element_scores(outputs: Array, targets: Array, metric: str, from_logits: bool) -> Array:
    """Return the score of each element, float64 (n, ...); the arguments are those of `sums`."""
    if metric not in _SCORERS:
        raise RecipeError(
            f"there is no metric {metric!r}", hint=f"one of {', '.join(sorted(_SCORERS))}"
        )
    return _SCORERS[metric](output_of(outputs, targets, from_logits))


def _accuracy(given: Output) -> Array:
    outputs = given.outputs
    if outputs.shape[-1] == 1:
        return _binary_accuracy(given)
    hits = outputs.argmax(axis=-1) == class_numbers(outputs, given.targets)[..., 0]
    # A NaN is never the right answer, wherever it sorts.
    return (hits & ~np.isnan(outputs).any(axis=-1)).astype(np.float64)


def _binary_accuracy(given: Output) -> Array:
    """Score every label of an example for itself, as for several labels at once."""
    positive = given.outputs > (0.0 if given.from_logits else 0.5)
    right = positive == (given.values > 0.5)
    return (right & ~np.isnan(given.outputs)).astype(np.float64)


def count_ties(outputs: Array, mask: Array | None) -> tuple[int, int]:
    """Return for how many elements several classes have the highest output, and their number.

    Args:
        outputs: (n, ..., classes).
        mask: bool, of the leading axes of the outputs; what is not set does not count.
    """
    tied = (outputs == outputs.max(axis=-1, keepdims=True)).sum(axis=-1) > 1
    counted = sum_up(tied.astype(np.float64), mask)
    return int(counted.values.sum()), int(counted.valid.sum())


def among_best(outputs: Array, targets: Array, k: int) -> Array:
    """Return the chance that the own class is among the `k` best, (n, ...), ties broken at random.

    Places that better classes leave are shared by all that have the own class' value.
    """
    own = np.take_along_axis(outputs, class_numbers(outputs, targets), axis=-1)
    better = (outputs > own).sum(axis=-1)
    equal = np.maximum((outputs == own).sum(axis=-1), 1)
    chance = np.clip((k - better) / equal, 0.0, 1.0)
    # A NaN is never the right answer, wherever it sorts.
    return np.where(np.isnan(outputs).any(axis=-1), 0.0, chance)


def _crossentropy(given: Output) -> Array:
    if is_one_hot(given.outputs, given.targets):
        return -(given.targets * given.logarithms).sum(axis=-1)
    numbers = class_numbers(given.outputs, given.targets)
    return -np.take_along_axis(given.logarithms, numbers, axis=-1)


def _binary_crossentropy(given: Output) -> Array:
    wanted, outputs = given.values, given.outputs
    if given.from_logits:
        rest = np.log1p(np.exp(-np.abs(outputs)))
        return np.maximum(outputs, 0) - outputs * wanted + rest
    p = np.clip(outputs, _EPSILON, 1 - _EPSILON)
    return -(wanted * np.log(p) + (1 - wanted) * np.log1p(-p))


def log_softmax(outputs: Array) -> Array:
    """Return the logarithms of the probabilities that logits stand for, (..., k)."""
    shifted = outputs - outputs.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def probabilities(outputs: Array) -> Array:
    """Return the softmax of logits, (..., k)."""
    return np.asarray(np.exp(log_softmax(outputs)))


def sigmoid(outputs: Array) -> Array:
    """Return the probabilities that single logits stand for."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -outputs)))


def is_one_hot(outputs: Array, targets: Array) -> bool:
    """Whether targets are one-hot labels or probabilities, and no class numbers."""
    return targets.shape == outputs.shape and outputs.shape[-1] > 1


def class_numbers(outputs: Array, targets: Array) -> Array:
    """Return class numbers, (n, ..., 1)."""
    if is_one_hot(outputs, targets):
        return targets.argmax(axis=-1)[..., None]
    labels = of_shape(targets, (*outputs.shape[:-1], 1)).astype(np.int64)
    classes = outputs.shape[-1]
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise DataError(
            f"labels from {labels.min()} to {labels.max()} for a model with {classes} classes",
            hint="shrink data check",
        )
    return labels


def of_shape(targets: Array, shape: tuple[int, ...]) -> Array:
    """Return targets in the shape of the outputs.

    Raises:
        DataError: they have another number of elements.
    """
    if targets.size != np.prod(shape):
        raise DataError(f"targets of shape {targets.shape} do not match {shape}")
    return targets.reshape(shape)


_SCORERS: dict[str, Callable[[Output], Array]] = {
    "accuracy": _accuracy,
    "binary_accuracy": _binary_accuracy,
    "top5_accuracy": lambda given: among_best(given.outputs, given.targets, 5),
    "sparse_categorical_crossentropy": _crossentropy,
    "categorical_crossentropy": _crossentropy,
    "binary_crossentropy": _binary_crossentropy,
    "mean_squared_error": lambda given: np.square(given.outputs - given.values),
    "mean_absolute_error": lambda given: np.abs(given.outputs - given.values),
}
