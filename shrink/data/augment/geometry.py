"""Flips, shifts and rotations of a batch of pictures, in one resampling."""

from __future__ import annotations

import math

import tensorflow as tf

_SAMPLED = (tf.uint8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64)
"""What TensorFlow's resampling takes."""


def signs(u: tf.Tensor) -> tf.Tensor:
    """Return -1 for numbers below one half and 1 for the others."""
    return tf.where(u < 0.5, -1.0, 1.0)


def whole_shifts(u: tf.Tensor, most: int) -> tf.Tensor:
    """Return whole numbers from -most to most, each as likely, of numbers in [0, 1)."""
    return tf.floor(u * float(2 * most + 1)) - float(most)


def angles(u: tf.Tensor, most_degrees: float) -> tf.Tensor:
    """Return angles in radians, up to `most_degrees` either way, of numbers in [0, 1)."""
    return (2.0 * u - 1.0) * math.radians(most_degrees)


def resample(
    pictures: tf.Tensor,
    flip_x: tf.Tensor,
    flip_y: tf.Tensor,
    shift_x: tf.Tensor,
    shift_y: tf.Tensor,
    angle: tf.Tensor | None,
) -> tf.Tensor:
    """Return pictures (n, height, width, c) turned about their centres, mirrored and shifted.

    The pixel (x, y) of the result comes from `R(angle) F ((x, y) - centre) + centre + shift`;
    what lies outside is 0. Without an angle pixels are moved, never mixed.

    Args:
        pictures: of any dtype.
        flip_x: (n,), -1 to mirror left and right, else 1.
        flip_y: (n,), the same for top and bottom.
        shift_x: (n,), whole pixels.
        shift_y: (n,), whole pixels.
        angle: (n,), radians, or None.
    """
    height, width = pictures.shape[1:3]
    cos = tf.ones_like(flip_x) if angle is None else tf.cos(angle)
    sin = tf.zeros_like(flip_x) if angle is None else tf.sin(angle)
    center_x, center_y = (width - 1) / 2, (height - 1) / 2
    xx, xy, yx, yy = cos * flip_x, -sin * flip_y, sin * flip_x, cos * flip_y
    zero = tf.zeros_like(flip_x)
    transforms = tf.stack(
        [
            *(xx, xy, center_x - xx * center_x - xy * center_y + shift_x),
            *(yx, yy, center_y - yx * center_x - yy * center_y + shift_y),
            *(zero, zero),
        ],
        axis=1,
    )
    exact = angle is None and pictures.dtype in _SAMPLED
    source = pictures if exact else tf.cast(pictures, tf.float32)
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=source,
        transforms=transforms,
        output_shape=[height, width],
        fill_value=0.0,
        interpolation="NEAREST" if angle is None else "BILINEAR",
        fill_mode="CONSTANT",
    )
    moved = tf.ensure_shape(moved, pictures.shape)
    return moved if exact else as_stored(moved, pictures.dtype)


def as_stored(values: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return float values in a stored dtype: integers rounded and clipped to their range."""
    if not dtype.is_integer:
        return tf.cast(values, dtype)
    low, high = float(max(dtype.min, -(2**24))), float(min(dtype.max, 2**24))
    return tf.cast(tf.clip_by_value(tf.round(values), low, high), dtype)
