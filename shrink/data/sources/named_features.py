"""Inputs and targets of records whose features have names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


class NamedFeatures:
    """What is fed to a model from features as they are stored.

    Inputs are fed as stored, except that float64 becomes float32 and bool becomes uint8. An
    integer scalar target is int64; all others are float32, and scalars get the shape (1,).

    Args:
        inputs: names of the features that are inputs.
        targets: the same of targets; none for an autoencoder.
        stored: one example's spec of each of them, as stored.
    """

    def __init__(
        self,
        inputs: tuple[str, ...],
        targets: tuple[str, ...],
        stored: Mapping[str, tf.TensorSpec],
    ) -> None:
        self.inputs = {name: _input_spec(stored[name]) for name in inputs}
        self.targets = {name: _target_spec(stored[name]) for name in targets}

    @property
    def label(self) -> str | None:
        """The name of the only target where it holds integer labels, else None."""
        found = list(self.targets.items())
        return found[0][0] if len(found) == 1 and found[0][1].dtype == tf.int64 else None

    @property
    def input_spec(self) -> Any:
        """One example's input."""
        return _single(tuple(self.inputs.values()))

    @property
    def target_spec(self) -> Any:
        """One example's target."""
        return _single(tuple(self.targets.values()) or (tf.TensorSpec((0,), tf.float32),))

    def batch(
        self, x: Mapping[str, tf.Tensor], y: Mapping[str, tf.Tensor], size: tf.Tensor
    ) -> tuple[Any, Any]:
        """Return `(x, y)` as a model takes them, of `size` examples."""
        none = tf.zeros((size, 0), tf.float32)
        targets = tuple(y[name] for name in self.targets) or (none,)
        return _single(tuple(x[name] for name in self.inputs)), _single(targets)


def _input_spec(stored: tf.TensorSpec) -> tf.TensorSpec:
    fed = {tf.float64: tf.float32, tf.bool: tf.uint8}.get(stored.dtype, stored.dtype)
    return tf.TensorSpec(stored.shape, fed)


def _target_spec(stored: tf.TensorSpec) -> tf.TensorSpec:
    if stored.shape.rank == 0 and stored.dtype.is_integer:
        return tf.TensorSpec((), tf.int64)
    return tf.TensorSpec(stored.shape if stored.shape.rank else (1,), tf.float32)


def _single(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values
