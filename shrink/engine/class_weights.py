"""Weights of classes: how much each example counts in the loss, by its label."""

from __future__ import annotations

import numpy as np

from shrink.base.errors import DataError, RecipeError, hint_for
from shrink.base.types import Array, Tensors
from shrink.data.dataset import Dataset
from shrink.engine.config import ClassWeights
from shrink.tflite.lazy import tf

_KEY = "training.class_weights"
_SEEN = 64


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
    labels, classes, names = dataset.train.labels, dataset.num_classes, dataset.class_names
    if labels is None or classes is None:
        raise DataError(
            f"class weights need one class number for each example, but {_described(dataset)}",
            subject=_KEY,
            hint="store class numbers, or remove training.class_weights",
        )
    labels = np.asarray(labels)
    if labels.size == len(labels):
        labels = labels.reshape(-1)
    elif labels.shape[1:] == (classes,) and _is_one_hot(labels):
        labels = labels.argmax(-1)
    else:
        raise DataError(
            "class weights need one label for each example, but the labels have the shape "
            f"{labels.shape}",
            subject=_KEY,
            hint="remove training.class_weights",
        )
    if weights == "balanced":
        counts = np.bincount(labels, minlength=classes)
        if not counts.all():
            missing = int(np.argmin(counts))
            name = names[missing] if names else str(missing)
            raise DataError(
                f"the train split has no example of the class {name}, which cannot be balanced",
                subject=_KEY,
                hint="write the weights of the classes instead of balanced",
            )
        return (counts.sum() / (len(counts) * counts)).astype(np.float32)
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


def _is_one_hot(labels: Array) -> bool:
    return bool(np.isin(labels, (0, 1)).all() and (labels.sum(-1) == 1).all())


def _described(dataset: Dataset) -> str:
    """Return in words what targets are that are no class numbers."""
    first = np.arange(min(_SEEN, len(dataset.train)))
    targets = [np.asarray(part) for part in tf.nest.flatten(dataset.train.arrays(first)[1])]
    values = targets[0]
    if len(targets) > 1:
        return f"there are {len(targets)} targets"
    if values.ndim == 2 and values.shape[1] > 1 and np.isin(values, (0, 1)).all():
        one = "the labels are one-hot"
        return one if _is_one_hot(values) else "each example has several labels"
    what = "whole numbers" if np.array_equal(values, np.round(values)) else "real numbers"
    return f"the targets are {what} of shape {values.shape[1:]}"


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
        if labels.shape.rank == 1 or labels.shape[1:] == (1,):
            return x, y, tf.gather(table, tf.cast(tf.reshape(labels, (-1,)), tf.int32))
        expected = tf.linalg.matvec(tf.cast(labels, table.dtype), table)
        return x, y, tf.reshape(expected, (-1,))

    return batches.map(weigh)
