"""A model that quantizes in its forward pass.

Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-
Only Inference", section 3: gradients pass a rounding unchanged, and stop where a value is clipped.
Nothing here is a moving average: the results do not depend on how a batch is split.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.types import JsonObject
from shrink.contract.report import Skipped
from shrink.graph.network import Call, Network, Ref, is_batch_norm, read_network
from shrink.graph.rebuild import connect
from shrink.quantization.calibration import Batches, Ranges, least_squares_of, values_of_few
from shrink.quantization.source import FloatModel
from shrink.tflite.names import Named, ordered, signature_names

L = keras.layers

_LARGEST_CODE = 127
_LEVELS = 256
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

    What lies in the middle of two levels goes to the even code, as in numpy, in XNNPACK and in
    `shrink.tflite.interpreter.quantize`; TensorFlow's own operator takes the one above or below, as
    its float error falls. 8 / 16 in a range of 0 to 1 is such a value.

    Args:
        low: least value, at most 0.
        high: largest value, at least 0.
    """

    def __init__(self, low: float, high: float, **keys: object) -> None:
        super().__init__(**keys)
        self.low, self.high = low, high
        self.supports_masking = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the rounded values, in the inputs' dtype."""
        return tf.cast(self._rounded(tf.cast(inputs, tf.float32)), inputs.dtype)

    def _rounded(self, inputs: tf.Tensor) -> tf.Tensor:
        scale = np.float32((self.high - self.low) / (_LEVELS - 1))
        least = np.rint(np.float32(self.low) / scale)

        @tf.custom_gradient
        def rounded(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            def gradient(upstream: tf.Tensor) -> tf.Tensor:
                return tf.quantization.fake_quant_with_min_max_args_gradient(
                    upstream, x, self.low, self.high
                )

            codes = tf.clip_by_value(tf.round(x / scale), least, least + _LEVELS - 1)
            return codes * scale, gradient

        return rounded(inputs)

    def get_config(self) -> JsonObject:
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


def rounded_kernel(kernel: tf.Tensor, axes: tuple[int, ...]) -> tf.Tensor:
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

    def call(self: keras.layers.Layer, inputs: tf.Tensor) -> tf.Tensor:
        variable = getattr(self, name)
        # Past Keras' own assignment, which would forget the variable.
        self.__dict__[name] = rounded_kernel(tf.convert_to_tensor(variable), axes)
        try:
            return kind.call(self, inputs)  # type: ignore[attr-defined]
        finally:
            self.__dict__[name] = variable

    return type(f"Quantizing{kind.__name__}", (kind,), {"call": call})


_PASSING = (
    L.Flatten, L.Reshape, L.Permute, L.Dropout, L.SpatialDropout1D, L.SpatialDropout2D,
    L.ActivityRegularization, L.MaxPooling1D, L.MaxPooling2D, L.GlobalMaxPooling2D,
    L.ZeroPadding1D, L.ZeroPadding2D, L.Cropping1D, L.Cropping2D,
)  # fmt: skip
"""Layers whose output holds nothing but values of their input, or zeros."""
_SUMS = (L.Add, L.Subtract, L.Multiply)
_KEEPING_SCALE = (L.AveragePooling1D, L.AveragePooling2D, L.UpSampling1D, L.UpSampling2D)
"""Layers whose integer kernels write with the scale that they read with."""
_GIVING_SCALE = (L.Concatenate, L.Maximum)
"""Layers whose inputs are written with the scale of their output, where nothing else reads them."""
_FUSED = (keras.activations.relu, tf.nn.relu, tf.nn.relu6)
_SCALED = {
    keras.activations.sigmoid: (0.0, 255 / 256),
    keras.activations.softmax: (0.0, 255 / 256),
    keras.activations.tanh: (-1.0, 127 / 128),
}
"""Ranges that the kernels of these functions write, whatever the examples are."""
N_PROBE = 8
"""Examples used to match Keras tensors to TFLite tensors by value."""
_SAME = 1e-3  # of the largest: kernels of Keras and of LiteRT add up in another order


@dataclass(frozen=True)
class AwareModel:
    """A model in two forms with the same names of layers and the same weights.

    Attributes:
        plain: the float model, flattened.
        aware: the one to train; its kernels and activations are rounded.
        ranges: of the activations that `aware` rounds, by their index in the network of `plain`.
        skipped: layers that are trained with float weights, each with the reason.
    """

    plain: keras.Model
    aware: keras.Model
    ranges: Ranges
    skipped: tuple[Skipped, ...]

    def trained(self) -> keras.Model:
        """Return a float model with the weights of `aware`; call it outside of devices' scopes."""
        network = read_network(self.plain)
        model, built = _copy(network, lambda layer: type(layer))
        _take_weights(network, built, self.aware)
        return model

    def source(self, batches: Batches) -> FloatModel:
        """Return `trained()` with the ranges that it was trained with.

        Tensors of the file are matched by their values: the converter fuses layers, and names what
        they become as it likes.

        Args:
            batches: a few examples of the first batch are run.
        """
        source = FloatModel(self.trained())
        few = {name: array[:N_PROBE] for name, array in next(iter(batches)).items()}
        (ours,) = _activations(read_network(self.plain), self.aware, [few])
        source.ranges = ranges_by_value(source.float32.content, few, ours, self.ranges)
        return source


def aware_model(model: keras.Model, batches: Batches, *, float_inputs: bool = False) -> AwareModel:
    """Return a model for quantization-aware training; call it inside the devices' scope.

    Rounded are kernels, for each output channel, and every activation that the artifact stores:
    the converter fuses batch normalisation and ReLU into the operator before them, and makes an
    operator of every other activation function. The ranges of activations are taken from the
    examples and then stay.

    Args:
        model: functional or sequential; nested models are flattened.
        batches: calibration examples.
        float_inputs: whether inputs are not rounded, nor what only joins or scales them: the
            artifact begins with these layers in float.
    """
    plain = flat_model(read_network(model)).model
    network = read_network(plain)
    floats = {str(index) for index in _before_scaling(network)} if float_inputs else set()
    ranges = {k: ends for k, ends in _ranges(network, batches).items() if k not in floats}
    aware, quantizing = _copy(network, _kind, _quantize(ranges))
    _take_weights(network, quantizing, plain)
    return AwareModel(plain, aware, ranges, _skipped(network))


def stored_activations(network: Network) -> list[int]:
    """Return the indices of tensors that the integer artifact rounds, its outputs left out."""
    readers = _readers(network)
    outputs = {ref.index for ref in network.outputs}
    stored = [ref.index for _, ref in network.inputs]
    for call in network.calls:
        if isinstance(call.layer, (*_PASSING, L.Rescaling)):  # kernels may take a rescaling in
            continue
        for ref in call.outputs:
            after = readers.get(ref.index, [])
            fused = len(after) == 1 and _is_fused(call.layer, after[0].layer)
            if ref.index not in outputs and not fused:
                stored.append(ref.index)
    return stored


def _before_scaling(network: Network) -> set[int]:
    """Return the tensors that hold inputs which no layer has scaled."""
    found = {ref.index for _, ref in network.inputs}
    for call in network.calls:
        passes = isinstance(call.layer, (*_PASSING, L.Concatenate))
        if passes and found.issuperset(ref.index for ref in call.inputs):
            found.update(ref.index for ref in call.outputs)
    return found


def _readers(network: Network) -> dict[int, list[Call]]:
    readers: dict[int, list[Call]] = {}
    for call in network.calls:
        for ref in call.inputs:
            readers.setdefault(ref.index, []).append(call)
    return readers


def _is_fused(layer: keras.layers.Layer, reader: keras.layers.Layer) -> bool:
    """Whether a layer's output is first rounded as that of the only layer that reads it."""
    if isinstance(reader, _GIVING_SCALE):
        return _function(layer) not in _SCALED
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


def _skipped(network: Network) -> tuple[Skipped, ...]:
    reason = "{} weights are not rounded in training, only its outputs are"
    return tuple(
        Skipped(layer=network.name(layer), reason=reason.format(type(layer).__name__))
        for layer in network.layers()
        if layer.weights and not quantizes_kernel(layer) and not is_batch_norm(layer)
    )


@dataclass(frozen=True)
class Flat:
    """A flattened copy of a model in which each layer is one operator, as far as that is known.

    Attributes:
        model, parts: the copy; names of operator and function of a layer that is two, by its own.
    """

    model: keras.Model
    parts: Mapping[str, tuple[str, str]]


def flat_model(network: Network) -> Flat:
    """Return a copy in which each layer is one operator."""
    outputs = set(network.model.output_names)
    taken = {network.name(layer) for layer in network.layers()}
    named: dict[str, tuple[str, str]] = {}
    built: dict[int, keras.layers.Layer] = {}
    second: dict[int, keras.layers.Layer] = {}
    for layer in network.layers():
        config = {**layer.get_config(), "name": network.name(layer)}
        if parts := _parts(layer, config):
            first, last = parts
            name = config["name"]
            config |= first
            if name in outputs:  # the name stays with what the model gives out
                config["name"], last["name"] = _free(f"{name}_1", taken), name
            else:
                last["name"] = _free(f"{name}_2", taken)
            named[name] = config["name"], last["name"]
            second[id(layer)] = L.Activation.from_config(last)
        built[id(layer)] = type(layer).from_config(config)
    after = {
        ref.index: second[id(call.layer)]
        for call in network.calls
        for ref in call.outputs
        if id(call.layer) in second
    }
    model = connect(
        network, built, then=lambda ref, x: after[ref.index](x) if ref.index in after else x
    )
    for layer in network.layers():
        built[id(layer)].set_weights(layer.get_weights())
    return Flat(model, named)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:  # Keras's own names end in numbers, too
        name += "_"
    taken.add(name)
    return name


def _parts(layer: keras.layers.Layer, config: JsonObject) -> tuple[JsonObject, JsonObject] | None:
    """Return what changes in a layer with an activation, and the settings of that as a layer."""
    if not quantizes_kernel(layer) or _is_linear(layer):
        return None
    if layer.activation in _FUSED or isinstance(layer.activation, L.ReLU):
        return None
    moved = {key: config[key] for key in ("activation", "activity_regularizer", "dtype")}
    return {"activation": "linear", "activity_regularizer": None}, moved


def _copy(
    network: Network,
    kind: Callable[[keras.layers.Layer], type],
    then: Callable[[Ref, tf.Tensor], tf.Tensor] = lambda ref, tensor: tensor,
) -> tuple[keras.Model, Mapping[int, keras.layers.Layer]]:
    built = {
        id(layer): kind(layer).from_config(  # type: ignore[attr-defined]
            {**layer.get_config(), "name": network.name(layer)}
        )
        for layer in network.layers()
    }
    return connect(network, built, then=then), built


def _take_weights(
    network: Network, built: Mapping[int, keras.layers.Layer], model: keras.Model
) -> None:
    """Give the copies of a flat network's layers the weights of a model with the same names."""
    for layer in network.layers():
        name = network.name(layer)
        built[id(layer)].set_weights(model.get_layer(name).get_weights())


def _ranges(network: Network, batches: Batches) -> Ranges:
    """Return the range of each stored activation, by its index as text."""
    inputs = {str(ref.index) for _, ref in network.inputs}
    ranges = dict(
        least_squares_of(lambda: _activations(network, network.model, batches), _LEVELS, inputs)
    )
    scaled_as: dict[str, str] = {}
    for call in network.calls:
        read, written = (str(refs[0].index) if refs else "" for refs in (call.inputs, call.outputs))
        if isinstance(call.layer, (*_PASSING, *_KEEPING_SCALE)):
            scaled_as[written] = scaled_as.get(read, read)
        if (fixed := _SCALED.get(_function(call.layer))) and written in ranges:
            ranges[written] = fixed
    return ranges | {a: ranges[b] for a, b in scaled_as.items() if a in ranges and b in ranges}


def _function(layer: keras.layers.Layer) -> Callable[[tf.Tensor], tf.Tensor] | None:
    if isinstance(layer, L.Softmax):
        return keras.activations.softmax
    return layer.activation if isinstance(layer, L.Activation) else None


def _activations(
    network: Network, weights: keras.Model, batches: Batches
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the float activations of every batch that the artifact stores, by index as text."""
    tensors: dict[int, tf.Tensor] = {}

    def keep(ref: Ref, tensor: tf.Tensor) -> tf.Tensor:
        tensors[ref.index] = tensor
        return tensor

    model, built = _copy(network, lambda layer: type(layer), keep)
    _take_weights(network, built, weights)
    stored = [index for index in stored_activations(network) if tensors[index].dtype.is_floating]
    probe = keras.Model(model.inputs, [tensors[index] for index in stored])
    names = signature_names(network.model.input_names)
    for arrays in batches:
        values = tf.nest.flatten(probe(ordered(arrays, names), training=False))
        yield {
            str(index): np.asarray(value, np.float32)
            for index, value in zip(stored, values, strict=True)
        }


def ranges_by_value(
    content: bytes, few: Named, known: Mapping[str, np.ndarray], ranges: Ranges
) -> Ranges:
    """Return ranges by the tensors of a file that hold the same numbers in the same order.

    Args:
        content: a float .tflite model.
        few: examples, by the names of the model's inputs.
        known: values of activations on these, by names of their own.
        ranges: of some of these.
    """
    found: dict[str, tuple[float, float]] = {}
    for tensor, array in values_of_few(content, few).items():
        errors = {
            name: float(np.abs(other.ravel() - array.ravel()).max(initial=0))
            for name, other in known.items()
            if other.size == array.size
        }
        nearest = min(errors, key=lambda name: errors[name], default="")
        near = nearest in ranges and errors[nearest] <= _SAME * np.abs(array).max(initial=0)
        if near:
            found[tensor] = ranges[nearest]
    return found


def _quantize(ranges: Ranges) -> Callable[[Ref, tf.Tensor], tf.Tensor]:
    def then(ref: Ref, tensor: tf.Tensor) -> tf.Tensor:
        range_ = ranges.get(str(ref.index))
        if range_ is None:
            return tensor
        low, high = min(range_[0], 0.0), max(range_[1], 1e-6)
        return FakeQuantize(low, high, name=f"fake_quantize_{ref.index}")(tensor)

    return then
