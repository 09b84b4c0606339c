"""Cutout within a picture, mixup between the examples of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from shrink.data.augment.geometry import as_stored


def cutout(pictures: tf.Tensor, u: tf.Tensor, v: tf.Tensor, side: int) -> tf.Tensor:
    """Set a square to zero, centred on a random pixel (DeVries & Taylor 2017).

    Args:
        pictures: (n, height, width, c).
        u: (n,) in [0, 1), decides the row of the centre.
        v: (n,), its column.
        side: of the square, pixels; what lies outside the picture is cut off.
    """
    height, width = pictures.shape[1:3]
    rows, columns = _covered(u, height, side), _covered(v, width, side)
    hidden = rows[:, :, None, None] & columns[:, None, :, None]
    return tf.where(hidden, tf.zeros((), pictures.dtype), pictures)


def beta_quantiles(u: np.ndarray, alpha: float) -> np.ndarray:
    """Return the quantiles u of Beta(alpha, alpha), float32."""
    from scipy.special import betaincinv

    return np.asarray(betaincinv(alpha, alpha, u.astype(np.float64)), np.float32)


def mixup(x: Any, y: Any, share: tf.Tensor, num_classes: int | None) -> tuple[Any, Any]:
    """Mix each example with its mirror place in the batch (Zhang et al. 2018, eq. 1).

    Args:
        x: structure of (n, ...) inputs; integers are rounded.
        y: int64 (n,) or (n, 1) labels, or a structure of real targets (n, ...).
        share: float32 (n,), how much of each example itself is kept.
        num_classes: of labels, None for real targets.

    Returns:
        Inputs in their own dtype; targets in float32, labels as probabilities (n, classes).
    """
    if num_classes is not None:
        y = tf.one_hot(tf.reshape(y, (-1,)), num_classes)
    mixed = tf.nest.map_structure(lambda part: as_stored(_mixed(part, share), part.dtype), x)
    return mixed, tf.nest.map_structure(lambda part: _mixed(part, share), y)


def _mixed(values: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    share = tf.reshape(share, (-1, *[1] * (values.shape.rank - 1)))
    own = tf.cast(values, tf.float32)
    return share * own + (1.0 - share) * tf.reverse(own, [0])


def _covered(u: tf.Tensor, size: int, side: int) -> tf.Tensor:
    first = tf.floor(u * float(size))[:, None] - float(side // 2)
    places = tf.range(size, dtype=tf.float32)[None, :]
    return (places >= first) & (places < first + float(side))
