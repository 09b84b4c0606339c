"""How sparsity rises over the updates of a stage."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

SparsitySchedule = Callable[[tf.Tensor], tf.Tensor]
"""From the number of an update to the sparsity, float64: how many weights that is must be exact."""


def constant(sparsity: float) -> SparsitySchedule:
    """Return a schedule that is at `sparsity` from the start."""
    return lambda step: tf.fill(tf.shape(step), tf.constant(sparsity, tf.float64))


def polynomial(sparsity: float, last_update: int) -> SparsitySchedule:
    """Return the cubic ramp s(t) = s_f · (1 - (1 - t / last)³), constant afterwards.

    Equation 1 of Zhu & Gupta (2017), "To prune, or not to prune", with s_i = 0 and t_0 = 0.
    """

    def at(step: tf.Tensor) -> tf.Tensor:
        progress = tf.minimum(tf.cast(step, tf.float64) / last_update, 1.0)
        return sparsity * (1.0 - (1.0 - progress) ** 3)

    return at


def ramp_updates(ramp: float, total_updates: int) -> int:
    """Return the number of the update at which a ramp over `ramp` of all updates ends, ≥ 1."""
    return max(1, math.ceil(ramp * total_updates))
