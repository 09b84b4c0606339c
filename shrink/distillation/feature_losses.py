"""Distillation losses of features inside the models: pure functions, one value per example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

_EPSILON = 1e-12


def hint(student: Any, teacher: Any) -> Any:
    """Return the mean squared error of features (Romero et al. 2015, "FitNets", eq. 3).

    Args:
        student: (n, ..., channels), projected to the teacher's channels where they differ.
        teacher: (n, ..., channels).

    Returns:
        The loss of each example, (n,).
    """
    return tf.reduce_mean(_flat(tf.math.squared_difference(student, teacher)), axis=-1)


def attention(student: Any, teacher: Any) -> Any:
    """Return the squared distance of normalised attention maps.

    A map is the mean over channels of squared features, divided by its L2 norm (Zagoruyko &
    Komodakis 2017, "Paying More Attention to Attention", eq. 2, with the square of the norm, as
    in the authors' code).

    Args:
        student: (n, ..., channels).
        teacher: (n, ..., channels), the same positions, any channels.

    Returns:
        The loss of each example, (n,).
    """
    difference = _attention_map(student) - _attention_map(teacher)
    return tf.reduce_sum(tf.square(difference), axis=-1)


def _attention_map(features: Any) -> Any:
    energy = _flat(tf.reduce_mean(tf.square(features), axis=-1))
    return tf.math.l2_normalize(energy, axis=-1, epsilon=_EPSILON)


def relational(student: Any, teacher: Any) -> Any:
    """Return how far distances between the examples of a batch are from the teacher's.

    Huber loss of pairwise distances, each divided by their mean over the batch (Park et al. 2019,
    "Relational Knowledge Distillation", eqs. 5 to 8). What belongs to an example is its share:
    the mean over its partners. The batch is what is given, a micro-batch while training.

    Args:
        student: (n, ...), flattened.
        teacher: (n, ...), flattened; any size.

    Returns:
        The loss of each example, (n,).
    """
    s, t = _distances(_flat(student)), _distances(_flat(teacher))
    error = tf.abs(s - t)
    huber = tf.where(error <= 1, tf.square(error) / 2, error - 0.5)
    return tf.reduce_mean(huber, axis=-1)


def _distances(embeddings: Any) -> Any:
    """Return pairwise distances over their mean, (n, n); zero on the diagonal."""
    squared = tf.reduce_sum(tf.square(embeddings), axis=-1)
    products = tf.matmul(embeddings, embeddings, transpose_b=True)
    apart = squared[:, None] + squared[None, :] - 2 * products
    rows = tf.shape(embeddings)[0]
    apart = tf.where(tf.eye(rows, dtype=tf.bool), tf.zeros_like(apart), apart)
    # The square root has no gradient at 0.
    positive = apart > _EPSILON
    distances = tf.where(positive, tf.sqrt(tf.where(positive, apart, tf.ones_like(apart))), 0)
    pairs = tf.cast(tf.maximum(rows * (rows - 1), 1), embeddings.dtype)
    mean = tf.reduce_sum(distances) / pairs
    return distances / tf.maximum(mean, tf.cast(_EPSILON, embeddings.dtype))


def _flat(values: Any) -> Any:
    """Return (n, ...) as (n, everything else); (n,) becomes (n, 1)."""
    return tf.reshape(values, (tf.shape(values)[0], -1))


FEATURE_LOSSES: Mapping[str, Callable[[Any, Any], Any]] = {
    "hint": hint,
    "attention": attention,
    "relational": relational,
}
"""The losses of features that a recipe can name; all but `hint` take features of any width."""
