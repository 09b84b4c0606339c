"""Which weights may be zero together: each one by itself, two of four, or blocks of four.

Groups of four run along a kernel's input channels, the dimension that a product sums over: so do
the 2:4 units of GPUs (Mishra et al. 2021, "Accelerating Sparse Deep Neural Networks") and the 1x4
blocks of TFLite's sparse kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

GROUP = 4
"""Weights of one group."""

Pattern = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""A kernel (..., in, out) and the sparsity, a scalar in [0, 1), to a mask of 0 and 1 like it."""


def unstructured(weights: tf.Tensor, sparsity: tf.Tensor) -> tf.Tensor:
    """Return 0 for the `round(sparsity * size)` weights of smallest magnitude, 1 for the others.

    The weights may have any shape that is known. Exactly so many are 0: of equal ones those go
    that spread evenly over the kernel, the same at every call.
    """
    magnitudes = tf.abs(weights)
    size = math.prod(weights.shape)
    # In float64, as float32 cannot count the weights of a large kernel.
    pruned = tf.cast(tf.round(tf.cast(sparsity, tf.float64) * size), tf.int32)
    largest_pruned = tf.sort(tf.reshape(magnitudes, [-1]))[tf.maximum(pruned - 1, 0)]
    threshold = tf.where(pruned > 0, largest_pruned, tf.constant(-1.0, weights.dtype))
    above = magnitudes > threshold
    too_many = size - tf.math.count_nonzero(above, dtype=tf.int32) - pruned

    def with_equals() -> tf.Tensor:
        """Keep so many of those that equal the threshold."""
        places = tf.where(magnitudes == threshold, _spread(weights.shape), -1.0)
        last = tf.argsort(tf.reshape(places, [-1]), direction="DESCENDING", stable=True)[:too_many]
        kept = tf.scatter_nd(last[:, tf.newaxis], tf.ones([too_many], tf.int32), [size])
        return tf.logical_or(above, tf.reshape(kept, weights.shape) > 0)

    return tf.cast(tf.cond(too_many > 0, with_equals, lambda: above), weights.dtype)


def two_of_four(weights: tf.Tensor, sparsity: tf.Tensor) -> tf.Tensor:
    """Return 0 for the two smallest of each group, the first of equals; the sparsity is 0.5."""
    groups = tf.abs(_groups(weights))
    rank = tf.argsort(tf.argsort(groups, stable=True), stable=True)
    return _ungroup(tf.cast(rank >= GROUP // 2, weights.dtype), weights)


def block(weights: tf.Tensor, sparsity: tf.Tensor) -> tf.Tensor:
    """Return 0 for the `round(sparsity * groups)` groups of smallest L1 norm."""
    groups = _groups(weights)
    *places, inputs, outputs = weights.shape
    norms = tf.reshape(tf.reduce_sum(tf.abs(groups), -1), [*places, outputs, inputs // GROUP])
    kept = tf.reshape(unstructured(norms, sparsity), [-1, 1])
    return _ungroup(kept * tf.ones_like(groups), weights)


PATTERNS: Mapping[str, Pattern] = {
    "unstructured": unstructured,
    "2:4": two_of_four,
    "block": block,
}
"""Every pattern, by its name in a recipe."""


def pruned_count(kernel: np.ndarray, pattern: str) -> tuple[int, int]:
    """Return how many units of a pattern are zero in a kernel, and how many there are.

    A unit is a weight, or a group of four: wholly zero for `block`, for `2:4` with two zeros.

    Args:
        kernel: (..., in, out).
    """
    if pattern == "unstructured":
        return int(np.sum(kernel == 0)), kernel.size
    zeros = np.sum(np.swapaxes(kernel, -1, -2).reshape(-1, GROUP) == 0, axis=1)
    needed = GROUP if pattern == "block" else GROUP // 2
    return int(np.sum(zeros >= needed)), len(zeros)


def _spread(shape: tf.TensorShape) -> tf.Tensor:
    """Return a number in [0, 1) for each place, float64: those below x are a part x of every line.

    Steps along each axis are powers of a generalized golden ratio, taken modulo 1 (Roberts 2018,
    "The Unreasonable Effectiveness of Quasirandom Sequences").
    """
    ratio = 2.0
    for _ in range(50):
        ratio = (1 + ratio) ** (1 / (len(shape) + 1))
    places = tf.zeros(shape, tf.float64)
    for axis, side in enumerate(shape):
        along = [side if other == axis else 1 for other in range(len(shape))]
        steps = tf.cast(tf.range(side), tf.float64) / ratio ** (axis + 1)
        places += tf.reshape(steps, along)
    return places % 1.0


def _groups(weights: tf.Tensor) -> tf.Tensor:
    """Return (groups, 4); the groups of an output follow each other."""
    return tf.reshape(tf.linalg.matrix_transpose(weights), [-1, GROUP])


def _ungroup(groups: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    turned = tf.shape(tf.linalg.matrix_transpose(like))
    return tf.linalg.matrix_transpose(tf.reshape(groups, turned))
