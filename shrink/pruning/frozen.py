"""Masks that never change: what belongs to removed channels stays at zero through training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


class FrozenMasks:
    """Multiplies variables with fixed masks after every update; a hook for the engine.

    Create it inside the devices' scope.

    Args:
        pairs: variables, each with its mask of 0 and 1 of the same shape.
    """

    def __init__(self, pairs: Sequence[tuple[tf.Variable, np.ndarray]]) -> None:
        self._pairs = [
            (variable, tf.Variable(tf.cast(mask, variable.dtype), trainable=False))
            for variable, mask in pairs
        ]

    def __call__(self, strategy: tf.distribute.Strategy, step: tf.Tensor) -> None:
        """Apply the masks, whatever the step."""
        for variable, mask in self._pairs:
            strategy.extended.update(variable, _apply, args=(mask,))


def _apply(variable: tf.Variable, mask: tf.Variable) -> None:
    variable.assign(variable.read_value() * mask.read_value())
