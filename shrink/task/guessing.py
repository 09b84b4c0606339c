"""What a model that never looks at its input would score, to tell a trained one from chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.data.dataset import Dataset
from shrink.data.examples import Examples, reading_batch

_MOST_EXAMPLES_READ = 20_000
"""Targets that are no plain labels are read with their inputs; beyond this it would take long."""
_MOST_NAMES = 20
_RANGE_EXAMPLES = 64
_SCALING = (keras.layers.Rescaling, keras.layers.Normalization)


def describe_guess(dataset: Dataset, metric: str, model: keras.Model | None) -> dict[str, Any]:
    """Return what the report needs to tell whether a model is better than guessing, and why not.

    Args:
        dataset: what the metric was measured on.
        metric: the main metric.
        model: the Keras model, where there is one.

    Returns:
        `metric`; `value`, what the best constant answer scores on the test examples, None where
        that is not known; `classes`, their names in the order of the labels, at most twenty, and
        `num_classes`; `low` and `high` of the first input over some test examples, before any
        layer of the model; `rescales`, whether the model has a layer that scales its inputs, None
        without a Keras model; `only_in_test` and `only_in_train`, names of classes.
    """
    masked = model is not None and any(_is_masked(tensor) for tensor in model.outputs)
    low, high = _input_range(dataset.test)
    return {
        "metric": metric,
        "value": None if masked else best_constant(dataset.test, metric),
        "classes": list(dataset.class_names[:_MOST_NAMES]),
        "num_classes": dataset.num_classes,
        "low": low,
        "high": high,
        "rescales": None if model is None else _rescales(model),
        "only_in_test": _only_in(dataset, dataset.test, dataset.train),
        "only_in_train": _only_in(dataset, dataset.train, dataset.test),
    }


def best_constant(examples: Examples, metric: str) -> float | None:
    """Return what the best answer that is the same for every example scores on these.

    For `accuracy` that is the share of the commonest class, over all positions of all examples;
    for `binary_accuracy` the mean over the labels of the share of the commoner value; for
    `mean_squared_error` the mean over the outputs of the variance. None for other metrics, for
    several outputs, and where targets would have to be read from very many examples.
    """
    labels = examples.labels
    if metric == "accuracy" and labels is not None and len(labels):
        return _largest_share(Counter(np.asarray(labels).ravel().tolist()))
    if metric not in ("accuracy", "binary_accuracy", "mean_squared_error"):
        return None
    one_output = len(tf.nest.flatten(examples.target_spec)) == 1
    if not one_output or not 0 < len(examples) <= _MOST_EXAMPLES_READ:
        return None
    if metric == "accuracy":
        return _largest_share(_class_counts(examples))
    mean, variance = _moments(examples)
    if metric == "mean_squared_error":
        return float(np.mean(variance))
    return float(np.mean(np.maximum(mean, 1 - mean)))


def _targets(examples: Examples) -> Iterator[np.ndarray[Any, Any]]:
    step = reading_batch(examples.input_spec, examples.target_spec)
    for start in range(0, len(examples), step):
        indices = np.arange(start, min(start + step, len(examples)))
        yield np.asarray(tf.nest.flatten(examples.arrays(indices)[1])[0])


def _class_counts(examples: Examples) -> Counter[int]:
    """Count classes: of labels in whole numbers, and of one-hot labels along the last axis."""
    counts: Counter[int] = Counter()
    for batch in _targets(examples):
        classes = batch.argmax(axis=-1) if _one_hot(batch) else np.rint(batch).astype(np.int64)
        counts.update(classes.ravel().tolist())
    return counts


def _one_hot(batch: np.ndarray[Any, Any]) -> bool:
    """Whether the last axis is one of classes: labels of sequences do not all add up to 1."""
    if batch.ndim < 2 or batch.shape[-1] < 2:
        return False
    return bool(np.all(batch >= 0) and np.allclose(batch.sum(axis=-1), 1))


def _largest_share(counts: Counter[int]) -> float:
    return max(counts.values()) / sum(counts.values())


def _moments(examples: Examples) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return mean and variance of each element of the targets, float64.

    Batches are joined by their means and squared deviations (Chan, Golub and LeVeque 1983): sums
    of squares would lose the variance of targets that are far from 0.
    """
    count, mean, squares = 0, np.float64(0), np.float64(0)
    for batch in _targets(examples):
        values = batch.astype(np.float64)
        size, own = len(values), values.mean(axis=0)
        apart = own - mean
        total = count + size
        squares = squares + ((values - own) ** 2).sum(axis=0) + apart**2 * count * size / total
        mean = mean + apart * size / total
        count = total
    return np.asarray(mean), np.asarray(squares / count)


def _input_range(examples: Examples) -> tuple[float | None, float | None]:
    if not len(examples):
        return None, None
    spread = np.unique(np.linspace(0, len(examples) - 1, _RANGE_EXAMPLES).astype(np.int64))
    first = np.asarray(tf.nest.flatten(examples.arrays(spread)[0])[0])
    if first.size == 0 or not np.issubdtype(first.dtype, np.number):
        return None, None
    low, high = float(np.min(first)), float(np.max(first))
    return (low, high) if np.isfinite(low) and np.isfinite(high) else (None, None)


def _is_masked(tensor: Any) -> bool:
    """Whether some positions of an output do not count, which a plain count would count."""
    return getattr(tensor, "_keras_mask", None) is not None


def _rescales(model: keras.Model) -> bool:
    return any(isinstance(layer, _SCALING) for layer in model._flatten_layers())


def _only_in(dataset: Dataset, here: Examples, there: Examples) -> list[str]:
    if here.labels is None or there.labels is None or not dataset.class_names:
        return []
    names = dataset.class_names
    missing = sorted(set(np.unique(here.labels).tolist()) - set(np.unique(there.labels).tolist()))
    return [names[i] if 0 <= i < len(names) else str(i) for i in missing]
