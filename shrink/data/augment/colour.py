"""Brightness, contrast, saturation and hue of a batch of pictures, on float values."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

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
