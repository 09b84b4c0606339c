"""Which weights may be zero together: each one by itself, two of four, or blocks of four.

Groups of four run along a kernel's input channels, the dimension that a product sums over: so do
the 2:4 units of GPUs (Mishra et al. 2021, "Accelerating Sparse Deep Neural Networks") and the 1x4
blocks of TFLite's sparse kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

GROUP = 4
"""Weights of one group."""

Pattern = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""A kernel (..., in, out) and the sparsity, a scalar in [0, 1), to a mask of 0 and 1 like it."""


def unstructured(weights: tf.Tensor, sparsity: tf.Tensor) -> tf.Tensor:
    """Return 0 for the `round(sparsity * size)` weights of smallest magnitude, 1 for the others.

    The weights may have any shape. Ties with the largest pruned magnitude are pruned.
    """
    size = tf.cast(tf.size(weights), tf.float32)
    pruned = tf.cast(tf.round(sparsity * size), tf.int32)
    ascending = tf.sort(tf.reshape(tf.abs(weights), [-1]))
    largest_pruned = ascending[tf.maximum(pruned - 1, 0)]
    threshold = tf.where(pruned > 0, largest_pruned, tf.constant(-1.0, weights.dtype))
    return tf.cast(tf.abs(weights) > threshold, weights.dtype)


def two_of_four(weights: tf.Tensor, sparsity: tf.Tensor) -> tf.Tensor:
    """Return 0 for the two smallest of each group, the first of equals; the sparsity is 0.5."""
    groups = tf.abs(_groups(weights))
    rank = tf.argsort(tf.argsort(groups, stable=True), stable=True)
    return _ungroup(tf.cast(rank >= GROUP // 2, weights.dtype), weights)


def block(weights: tf.Tensor, sparsity: tf.Tensor) -> tf.Tensor:
    """Return 0 for the groups of smallest L1 norm, as many as the sparsity says."""
    groups = _groups(weights)
    kept = unstructured(tf.reduce_sum(tf.abs(groups), -1, keepdims=True), sparsity)
    return _ungroup(kept * tf.ones_like(groups), weights)


PATTERNS: Mapping[str, Pattern] = {
    "unstructured": unstructured,
    "2:4": two_of_four,
    "block": block,
}
"""Every pattern, by its name in a recipe."""


def _groups(weights: tf.Tensor) -> tf.Tensor:
    """Return (groups, 4); the groups of an output follow each other."""
    return tf.reshape(tf.linalg.matrix_transpose(weights), [-1, GROUP])


def _ungroup(groups: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    turned = tf.shape(tf.linalg.matrix_transpose(like))
    return tf.linalg.matrix_transpose(tf.reshape(groups, turned))
