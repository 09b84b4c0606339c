"""Weights of classes: how much each example counts in the loss, by its label."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError, RecipeError, hint_for
from shrink.base.types import Array, Tensors
from shrink.data.dataset import Dataset
from shrink.engine.config import ClassWeights

_KEY = "training.class_weights"
_SEEN, _ONE_ROW_EACH = 64, 2


def class_weights_of(weights: ClassWeights, dataset: Dataset) -> Array:
    """Return the weight of each class, float32 (classes,); classes that are not named have 1.

    `balanced` is n / (classes · n_class) over the train split (King & Zeng 2001), so that the
    mean weight of an example is 1.

    Args:
        weights: by class name or number, or `balanced`.
        dataset: its labels and class names.

    Raises:
        DataError: the targets are not class labels, or `balanced` finds a class without examples.
        RecipeError: there is no such class.
    """
    labels, classes = dataset.train.labels, dataset.num_classes
    if labels is None or classes is None:
        raise DataError(
            f"class weights need one class number for each example, and {_told(dataset)}",
            subject=_KEY,
            hint="store class numbers, or remove training.class_weights",
        )
    numbers = _class_numbers(np.asarray(labels), classes)
    if weights == "balanced":
        return _balanced(numbers, dataset)
    return _named(weights, classes, dataset.class_names)


def _told(dataset: Dataset) -> str:
    """Return what the targets are that are no class numbers, in words."""
    targets = tf.nest.flatten(dataset.train.arrays(np.arange(min(_SEEN, len(dataset.train))))[1])
    if len(targets) > 1:
        return f"there are {len(targets)} targets"
    (values,) = map(np.asarray, targets)
    if values.ndim == _ONE_ROW_EACH and values.shape[1] > 1 and np.isin(values, (0, 1)).all():
        alone = bool((values.sum(axis=1) == 1).all())
        return "the labels are one-hot" if alone else "each example has several labels"
    what = "whole numbers" if values.dtype.kind in "iu" else "real numbers"
    return f"the targets are {what} of shape {values.shape[1:]}"


def _class_numbers(labels: Array, classes: int) -> Array:
    """Return the class of each example, int (n,), of labels that are numbers or one-hot."""
    if labels.size == len(labels):
        return labels.reshape(-1)
    one_hot = labels.shape[1:] == (classes,) and bool(
        np.isin(labels, (0, 1)).all() and (labels.sum(-1) == 1).all()
    )
    if not one_hot:
        raise DataError(
            f"class weights need one label for each example, and these are of shape {labels.shape}",
            subject=_KEY,
            hint="remove training.class_weights",
        )
    return np.asarray(labels.argmax(-1))


def _balanced(labels: Array, dataset: Dataset) -> Array:
    counts = np.bincount(labels, minlength=dataset.num_classes or 0)
    if not counts.all():
        missing = int(np.argmin(counts))
        name = dataset.class_names[missing] if dataset.class_names else str(missing)
        raise DataError(
            f"the train split has no example of the class {name}, which cannot be balanced",
            subject=_KEY,
            hint="write the weights of the classes instead of balanced",
        )
    return (counts.sum() / (len(counts) * counts)).astype(np.float32)


def _named(weights: Mapping[str, float], classes: int, names: tuple[str, ...]) -> Array:
    known = {str(number): number for number in range(classes)}
    known |= {name: number for number, name in enumerate(names)}
    table = np.ones(classes, np.float32)
    for name, weight in weights.items():
        if name not in known:
            raise RecipeError(
                f"there is no class {name!r}",
                subject=f"{_KEY}.{name}",
                hint=hint_for(name, list(names) or list(known)),
            )
        table[known[name]] = weight
    return table


def with_class_weights(batches: tf.data.Dataset, weights: Array) -> tf.data.Dataset:
    """Return batches `(x, y, sample_weight)` of batches `(x, y)`.

    An example whose label is a distribution p over the classes, as mixup makes it, counts by the
    expected weight sum_c p_c w_c: a mixture of two examples by the same mixture of their weights.

    Args:
        batches: `y` is labels, or a structure that has them as `labels`: integers (n,) or (n, 1),
            or one-hot or probabilities (n, classes).
        weights: of each class, float32 (classes,).
    """
    table = tf.constant(weights)

    def weigh(x: Tensors, y: Tensors) -> tuple[Tensors, Tensors, tf.Tensor]:
        (labels,) = tf.nest.flatten(getattr(y, "labels", y))
        return x, y, _expected_weight(labels, table)

    return batches.map(weigh)


def _expected_weight(labels: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    if labels.shape.rank == 1 or labels.shape[1:] == (1,):
        return tf.gather(table, tf.cast(tf.reshape(labels, (-1,)), tf.int32))
    return tf.reshape(tf.linalg.matvec(tf.cast(labels, table.dtype), table), (-1,))
