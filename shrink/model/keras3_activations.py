"""Activations of Keras 3 as tf-keras computes them: by the same name, or by more layers.

Definitions: keras/src/backend/tensorflow/nn.py of Keras 3.15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras as keras

SAME = frozenset(
    {"elu", "exponential", "gelu", "linear", "mish", "relu", "selu", "sigmoid", "softmax",
     "softplus", "softsign", "swish", "tanh"}
)  # fmt: skip
"""Equal in both; `hard_sigmoid` is not: tf-keras has another slope."""

RENAMED = {"silu": "swish", "hard_swish": "hard_silu"}


def hard_sigmoid(x: Any) -> Any:
    """Return relu6(x + 3) / 6."""
    shifted = keras.layers.Rescaling(1.0, offset=3.0)(x)
    return keras.layers.Rescaling(1.0 / 6.0)(keras.layers.ReLU(max_value=6.0)(shifted))


def hard_silu(x: Any) -> Any:
    """Return x · relu6(x + 3) / 6 (Howard et al. 2019)."""
    return keras.layers.Multiply()([x, hard_sigmoid(x)])


def celu(x: Any, alpha: float = 1.0) -> Any:
    """Return max(x, 0) + alpha · (exp(min(x, 0) / alpha) - 1)."""
    return tf.nn.relu(x) + alpha * tf.math.expm1(tf.math.minimum(x, 0.0) / alpha)


def glu(x: Any, axis: int = -1) -> Any:
    """Return the first half times the sigmoid of the second (Dauphin et al. 2017)."""
    first, second = tf.split(x, 2, axis=axis)
    return tf.math.multiply(first, tf.math.sigmoid(second))


def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """Return x moved towards 0 by the threshold."""
    return tf.nn.relu(x - threshold) - tf.nn.relu(-x - threshold)


def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """Return x where it is farther from 0 than the threshold, else 0."""
    return tf.where(tf.math.greater(tf.math.abs(x), threshold), x, tf.zeros_like(x))


def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """Return x where it is above the threshold, else the default value."""
    other = tf.zeros_like(x) + default_value
    return tf.where(tf.math.greater(x, threshold), x, other)


def squareplus(x: Any, b: float = 4.0) -> Any:
    """Return (x + sqrt(x² + b)) / 2."""
    return (x + tf.math.sqrt(tf.math.square(x) + b)) / 2.0


def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """Return x, its negative part times the slope."""
    return keras.layers.LeakyReLU(alpha=negative_slope)(x)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "celu": celu,
    "glu": glu,
    "hard_shrink": hard_shrink,
    "hard_sigmoid": hard_sigmoid,
    "hard_silu": hard_silu,
    "hard_tanh": lambda x: tf.clip_by_value(x, -1.0, 1.0),
    "leaky_relu": leaky_relu,
    "log_sigmoid": lambda x: tf.math.log_sigmoid(x),
    "log_softmax": lambda x, axis=-1: tf.nn.log_softmax(x, axis=axis),
    "relu6": lambda x: keras.layers.ReLU(max_value=6.0)(x),
    "soft_shrink": soft_shrink,
    "sparse_sigmoid": lambda x: tf.clip_by_value(0.5 * (x + 1.0), 0.0, 1.0),
    "squareplus": squareplus,
    "tanh_shrink": lambda x: x - tf.math.tanh(x),
    "threshold": threshold,
}
"""Activations that take more than one layer of tf-keras, as functions of symbolic tensors."""
