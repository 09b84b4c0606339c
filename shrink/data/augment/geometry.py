"""Augmentations of one image."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seed: int, epoch: int, examples: np.ndarray, count: int) -> np.ndarray:
    """Return `count` numbers for each example, float32 (n, count), uniform in [0, 1).

    SplitMix64 (Steele, Lea & Flood 2014) as a hash of the counter (seed, epoch, example, place).

    Args:
        seed: of the training.
        epoch: from 0.
        examples: int64 (n,), places in the training split.
        count: numbers for each.
    """
    key = _mix(_mix(np.array([seed], np.uint64)) + np.array([epoch], np.uint64))
    stream = _mix(key + _mix(np.asarray(examples).astype(np.uint64)))
    places = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    bits = _mix(stream[:, None] + places)
    return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def _mix(z: np.ndarray) -> np.ndarray:
    z = z + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


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


_TO_YIQ = np.array(
    [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]], np.float32
)
"""Luma and two axes of colour, from red, green and blue (NTSC 1953)."""
_FROM_YIQ = np.linalg.inv(_TO_YIQ).astype(np.float32)


def brightness(pictures: tf.Tensor, u: tf.Tensor, most: float) -> tf.Tensor:
    """Add up to `most` either way to all values of a picture; u is (n,) in [0, 1)."""
    return pictures + _broad((2.0 * u - 1.0) * most)


def contrast(pictures: tf.Tensor, u: tf.Tensor, most: float) -> tf.Tensor:
    """Scale distances from each channel's mean by 1 plus or minus up to `most`."""
    mean = tf.reduce_mean(pictures, axis=(1, 2), keepdims=True)
    return mean + (pictures - mean) * _factor(u, most)


def saturation(pictures: tf.Tensor, u: tf.Tensor, most: float) -> tf.Tensor:
    """Scale distances from gray by 1 plus or minus up to `most`."""
    gray = tf.reduce_sum(pictures * _TO_YIQ[0], axis=3, keepdims=True)
    return gray + (pictures - gray) * _factor(u, most)


def hue(pictures: tf.Tensor, u: tf.Tensor, most: float) -> tf.Tensor:
    """Turn colours about the gray axis of YIQ by up to `most` of a full turn either way."""
    angle = (2.0 * u - 1.0) * (2.0 * math.pi * most)
    cos, sin = tf.cos(angle), tf.sin(angle)
    one, zero = tf.ones_like(angle), tf.zeros_like(angle)
    turn = tf.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], axis=1)
    matrix = _FROM_YIQ @ tf.reshape(turn, (-1, 3, 3)) @ _TO_YIQ
    return tf.einsum("nhwc,ndc->nhwd", pictures, matrix)


def _factor(u: tf.Tensor, most: float) -> tf.Tensor:
    return _broad(1.0 + (2.0 * u - 1.0) * most)


def _broad(values: tf.Tensor) -> tf.Tensor:
    return tf.reshape(values, (-1, 1, 1, 1))
