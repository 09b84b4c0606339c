"""Losses of masked outputs: means over the elements that are there, however a batch is split.

tf-keras' layers carry a mask of the elements that count from the inputs to the outputs, such as
that of `Embedding(mask_zero=True)`. The mean over valid elements is no mean over examples: the
number of valid elements of the whole global batch has to be known before any part's gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras as keras


class Totals(NamedTuple):
    """What a global batch holds, over all replicas.

    Attributes:
        rows: examples, int64 ().
        valid: valid elements of each masked output, int64 () each.
    """

    rows: Any
    valid: tuple[Any, ...] = ()


def masked_outputs(model: keras.Model) -> int:
    """Return how many of a functional model's outputs carry a mask."""
    return len(_masked(getattr(model, "outputs", None) or []))


def count_valid(outputs: Any) -> list[Any]:
    """Return the valid elements of each masked output, int64 () each."""
    return [tf.reduce_sum(tf.cast(o._keras_mask, tf.int64)) for o in _masked(outputs)]


def weigh_masks(outputs: Any, totals: Totals) -> None:
    """Scale the outputs' masks, in place, to weights whose mean over the global batch is 1.

    The mean of weighted losses over all elements is then the mean over the valid ones, as in
    tf-keras (`losses_utils.apply_valid_mask`), but over the global batch.
    """
    for output, valid in zip(_masked(outputs), totals.valid, strict=True):
        mask = output._keras_mask
        elements = totals.rows * tf.reduce_prod(tf.shape(mask, out_type=tf.int64)[1:])
        scale = tf.math.divide_no_nan(tf.cast(elements, tf.float64), tf.cast(valid, tf.float64))
        dtype = tf.float64 if output.dtype == tf.float64 else tf.float32
        output._keras_mask = tf.cast(mask, dtype) * tf.cast(scale, dtype)


def masked(values: Any, output: Any) -> Any:
    """Multiply values by an output's mask, if it has one.

    Args:
        values: one number per element of the output, (n, ...).
        output: what the model gave; its mask has the leading axes of `values`.
    """
    mask = getattr(output, "_keras_mask", None)
    if mask is None:
        return values
    mask = tf.cast(mask, values.dtype)
    axes = values.shape.rank - mask.shape.rank
    return values * tf.reshape(mask, tf.concat([tf.shape(mask), [1] * axes], 0))


def _masked(outputs: Any) -> list[Any]:
    return [o for o in tf.nest.flatten(outputs) if getattr(o, "_keras_mask", None) is not None]
