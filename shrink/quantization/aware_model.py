"""A model that quantizes in its forward pass.

Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-
Only Inference", section 3: gradients pass a rounding unchanged, and stop where a value is clipped.
Nothing here is a moving average: the results do not depend on how a batch is split.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.engine.batch_norm import is_batch_norm
from shrink.graph.network import Call, Network, Ref, read_network
from shrink.graph.rebuild import connect
from shrink.quantization.calibration import Batches
from shrink.quantization.ranges import Ranges, least_squares_of
from shrink.tflite.names import ordered, signature_names

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


_LEVELS = 256
_PASSING = (
    L.Flatten, L.Reshape, L.Permute, L.Dropout, L.SpatialDropout1D, L.SpatialDropout2D,
    L.ActivityRegularization, L.MaxPooling1D, L.MaxPooling2D, L.GlobalMaxPooling2D,
    L.ZeroPadding1D, L.ZeroPadding2D, L.Cropping1D, L.Cropping2D,
)  # fmt: skip
"""Layers whose output holds nothing but values of their input, or zeros."""
_SUMS = (L.Add, L.Subtract, L.Multiply)


@dataclass(frozen=True)
class AwareModel:
    """A model in two forms with the same names of layers and the same weights.

    Attributes:
        plain: the float model, flattened.
        aware: the one to train; its kernels and activations are rounded.
        skipped: layers that are trained with float weights, each with the reason.
    """

    plain: keras.Model
    aware: keras.Model
    skipped: list[dict[str, str]]

    def trained(self) -> keras.Model:
        """Return a float model with the weights of `aware`; call it outside of devices' scopes."""
        network = read_network(self.plain)
        model, built = _copy(network, lambda layer: type(layer))
        for layer in network.layers():
            built[id(layer)].set_weights(self.aware.get_layer(network.name(layer)).get_weights())
        return model


def aware_model(model: keras.Model, batches: Batches) -> AwareModel:
    """Return a model for quantization-aware training; call it inside the devices' scope.

    Rounded are kernels, for each output channel, and every activation that the artifact stores:
    the converter fuses batch normalisation and ReLU into the operator before them. The ranges of
    activations are taken from the examples and then stay.

    Args:
        model: functional or sequential; nested models are flattened.
        batches: calibration examples.
    """
    original = read_network(model)
    plain, built = _copy(original, lambda layer: type(layer))
    for layer in original.layers():
        built[id(layer)].set_weights(layer.get_weights())
    network = read_network(plain)
    ranges = _ranges(network, batches)
    aware, quantizing = _copy(network, _kind, _quantize(ranges))
    for layer in network.layers():
        quantizing[id(layer)].set_weights(layer.get_weights())
    return AwareModel(plain, aware, _skipped(network))


def stored_activations(network: Network) -> list[int]:
    """Return the indices of tensors that the integer artifact rounds, its outputs left out."""
    readers: dict[int, list[Call]] = {}
    for call in network.calls:
        for ref in call.inputs:
            readers.setdefault(ref.index, []).append(call)
    outputs = {ref.index for ref in network.outputs}
    found = [ref.index for _, ref in network.inputs]
    for call in network.calls:
        if isinstance(call.layer, _PASSING):
            continue
        for ref in call.outputs:
            after = readers.get(ref.index, [])
            fused = len(after) == 1 and _is_fused(call.layer, after[0].layer)
            if ref.index not in outputs and not fused:
                found.append(ref.index)
    return found


def _is_fused(layer: keras.layers.Layer, reader: keras.layers.Layer) -> bool:
    """Whether the converter makes one operator of a layer and the only one that reads it."""
    if not _is_linear(layer):
        return False
    if is_batch_norm(reader):
        return quantizes_kernel(layer)
    return _is_relu(reader) and (
        quantizes_kernel(layer) or is_batch_norm(layer) or isinstance(layer, _SUMS)
    )


def _is_linear(layer: keras.layers.Layer) -> bool:
    activation = getattr(layer, "activation", None)
    return activation is None or activation is keras.activations.linear


def _is_relu(layer: keras.layers.Layer) -> bool:
    if isinstance(layer, L.ReLU):
        plain = not layer.negative_slope and not layer.threshold
        return bool(plain and layer.max_value in (None, 6))
    return isinstance(layer, L.Activation) and layer.activation is keras.activations.relu


def _kind(layer: keras.layers.Layer) -> type:
    return with_quantized_kernel(type(layer)) if quantizes_kernel(layer) else type(layer)


def _skipped(network: Network) -> list[dict[str, str]]:
    reason = "{} weights are not rounded in training, only its outputs are"
    return [
        {"layer": network.name(layer), "reason": reason.format(type(layer).__name__)}
        for layer in network.layers()
        if layer.weights and not quantizes_kernel(layer) and not is_batch_norm(layer)
    ]


def _copy(
    network: Network,
    kind: Callable[[keras.layers.Layer], type],
    then: Callable[[Ref, Any], Any] = lambda ref, tensor: tensor,
) -> tuple[keras.Model, Mapping[int, keras.layers.Layer]]:
    built = {
        id(layer): kind(layer).from_config(  # type: ignore[attr-defined]
            {**layer.get_config(), "name": network.name(layer)}
        )
        for layer in network.layers()
    }
    return connect(network, built, then=then), built


def _ranges(network: Network, batches: Batches) -> Ranges:
    """Return the range of each stored activation, by its index as text."""
    tensors: dict[int, Any] = {}

    def keep(ref: Ref, tensor: Any) -> Any:
        tensors[ref.index] = tensor
        return tensor

    model, built = _copy(network, lambda layer: type(layer), keep)
    for layer in network.layers():
        built[id(layer)].set_weights(layer.get_weights())
    stored = [index for index in stored_activations(network) if tensors[index].dtype.is_floating]
    probe = keras.Model(model.inputs, [tensors[index] for index in stored])
    names = signature_names(network.model.input_names)

    def activations() -> Iterator[dict[str, np.ndarray]]:
        for arrays in batches:
            values = probe(ordered(arrays, names), training=False)
            yield {
                str(index): np.asarray(value, np.float32)
                for index, value in zip(stored, tf.nest.flatten(values), strict=True)
            }

    return least_squares_of(activations, _LEVELS, {str(ref.index) for _, ref in network.inputs})


def _quantize(ranges: Ranges) -> Callable[[Ref, Any], Any]:
    def then(ref: Ref, tensor: Any) -> Any:
        found = ranges.get(str(ref.index))
        if found is None:
            return tensor
        low, high = min(found[0], 0.0), max(found[1], 1e-6)
        return FakeQuantize(low, high, name=f"fake_quantize_{ref.index}")(tensor)

    return then
