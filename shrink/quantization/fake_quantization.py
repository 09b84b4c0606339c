"""Layers that compute in float with values on integer grids, and train as if there were none.

Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-
Only Inference", section 3: gradients pass a rounding unchanged, and stop where a value is clipped.
Nothing here is a moving average: the results do not depend on how a batch is split.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
import tf_keras as keras

L = keras.layers

_LARGEST_CODE = 127
_KERNELS: dict[type, tuple[str, tuple[int, ...]]] = {
    L.Dense: ("kernel", (0,)),
    L.Conv1D: ("kernel", (0, 1)),
    L.Conv2D: ("kernel", (0, 1, 2)),
    L.Conv2DTranspose: ("kernel", (0, 1, 3)),
    L.DepthwiseConv1D: ("depthwise_kernel", (0,)),
    L.DepthwiseConv2D: ("depthwise_kernel", (0, 1)),
}
"""By kind of layer its kernel, and the axes of the kernel that share a scale."""


class FakeQuantize(keras.layers.Layer):
    """Rounds its input (n, ...) to 256 levels of a fixed range, and clips it to that range.

    Args:
        low: least value, at most 0.
        high: largest value, at least 0.
    """

    def __init__(self, low: float, high: float, **keys: Any) -> None:
        super().__init__(**keys)
        self.low, self.high = low, high
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        """Return the rounded values, in the inputs' dtype."""
        rounded = tf.quantization.fake_quant_with_min_max_args(
            tf.cast(inputs, tf.float32), self.low, self.high
        )
        return tf.cast(rounded, inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {**super().get_config(), "low": self.low, "high": self.high}


def quantizes_kernel(layer: keras.layers.Layer) -> bool:
    """Whether `with_quantized_kernel` knows this kind of layer."""
    return type(layer) in _KERNELS


def with_quantized_kernel(kind: type) -> type:
    """Return a kind of layer like `kind` that computes with its kernel rounded.

    Its variables are those of `kind`, and `get_weights` gives them as they are, not rounded.
    """
    return _quantizing(kind)


def rounded_kernel(kernel: Any, axes: tuple[int, ...]) -> Any:
    """Return a kernel on the symmetric 8-bit grid of each output channel.

    Args:
        kernel: float tensor.
        axes: its axes but those of the output channels.
    """
    largest = tf.reduce_max(tf.abs(kernel), axis=axes, keepdims=True)
    scales = tf.maximum(largest, 1e-12) / _LARGEST_CODE
    return kernel + tf.stop_gradient(tf.round(kernel / scales) * scales - kernel)


@functools.cache
def _quantizing(kind: type) -> type:
    name, axes = _KERNELS[kind]

    def call(self: Any, inputs: Any) -> Any:
        variable = getattr(self, name)
        # Past Keras' own assignment, which would forget the variable.
        self.__dict__[name] = rounded_kernel(tf.convert_to_tensor(variable), axes)
        try:
            return kind.call(self, inputs)  # type: ignore[attr-defined]
        finally:
            self.__dict__[name] = variable

    return type(f"Quantizing{kind.__name__}", (kind,), {"call": call})
