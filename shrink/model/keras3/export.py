"""Export of a tf-keras model to Keras 3, with a check that outputs are equal."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

import keras as keras3
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.base.types import Json, Tensors
from shrink.graph.network import Call, Network, map_tensors, read_network
from shrink.model.keras3.convert import CLOSE, largest_difference, random_inputs

_RENAMED = {("LeakyReLU", "alpha"): "negative_slope"}
_DROPPED = frozenset(
    {"batch_input_shape", "dtype", "name", "trainable"}  # given to the new layer in another way
    | {"query_shape", "key_shape", "value_shape", "implementation"}  # change no result
)
_IDLE_VALUES = (None, False, "channels_last")
_INNER = ("layer", "forward_layer", "backward_layer")
_OPERATORS: Mapping[str, Callable[..., Tensors]] = {
    "__operators__.add": keras3.ops.add,
    "math.add": keras3.ops.add,
    "math.subtract": keras3.ops.subtract,
    "math.multiply": keras3.ops.multiply,
    "math.truediv": keras3.ops.true_divide,
    "math.negative": keras3.ops.negative,
    "math.sqrt": keras3.ops.sqrt,
    "math.square": keras3.ops.square,
    "nn.relu": keras3.ops.relu,
    "nn.softmax": keras3.ops.softmax,
    "math.sigmoid": keras3.ops.sigmoid,
    "math.tanh": keras3.ops.tanh,
    "reshape": keras3.ops.reshape,
}


def to_keras3(model: keras.Model) -> keras3.Model:
    """Return the model of Keras 3 that computes what a functional tf-keras model computes.

    Nested models are flattened. The outputs of both on random inputs agree to a relative 1e-5.

    Raises:
        ModelError: a layer has no counterpart in Keras 3, or the outputs differ.
    """
    network = read_network(model)
    tensors = {
        ref.index: keras3.Input(ref.shape[1:], dtype=layer.dtype, name=network.name(layer))
        for layer, ref in network.inputs
    }
    built: dict[int, Callable[..., Tensors]] = {}
    for call in network.calls:
        outputs = _called(call, network, tensors, built)
        for ref, output in zip(call.outputs, outputs, strict=True):
            tensors[ref.index] = output
    inputs = [tensors[ref.index] for _, ref in network.inputs]
    outputs = [tensors[ref.index] for ref in network.outputs]
    made = keras3.Model(_one_or_all(inputs), _one_or_all(outputs), name=model.name)
    for layer in network.layers():
        _copy_weights(layer, built[id(layer)])
    feed = _one_or_all(random_inputs(model))
    ours = keras3.tree.flatten(model(feed, training=False))
    theirs = keras3.tree.flatten(made(feed, training=False))
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if (difference := largest_difference([b], [a])) > CLOSE:
            raise ModelError(
                f"output {index} differs by {difference:.1e} of its largest value in Keras 3",
                subject=model.name,
                hint="report it with the model; nothing was written",
            )
    return made


def _called(
    call: Call,
    network: Network,
    tensors: Mapping[int, keras3.KerasTensor],
    built: dict[int, Callable[..., Tensors]],
) -> list[keras3.KerasTensor]:
    """Make the call in Keras 3; return its outputs."""
    args, kwargs = map_tensors(lambda ref: tensors[ref.index], call.arguments)
    if id(call.layer) not in built:
        built[id(call.layer)] = _counterpart(call.layer, network.name(call.layer))
    if type(call.layer).__name__ == "TFOpLambda":
        kwargs.pop("name", None)
    try:
        return list(keras3.tree.flatten(built[id(call.layer)](*args, **kwargs)))
    except (TypeError, ValueError) as error:
        raise _unsupported(call.layer, str(error).splitlines()[0]) from error


def _counterpart(layer: keras.layers.Layer, name: str) -> Callable[..., Tensors]:
    """Return a layer or an operation of Keras 3 that computes the same, with weights of its own."""
    kind = type(layer).__name__
    if kind == "TFOpLambda":
        if layer.symbol not in _OPERATORS:
            raise _unsupported(layer, f"no operation of Keras 3 is known for {layer.symbol}")
        return _OPERATORS[layer.symbol]
    if kind == "SlicingOpLambda":
        return _slice
    made = getattr(keras3.layers, kind, None)
    if made is None:
        raise _unsupported(layer, "Keras 3 has no such layer")
    settings = _settings(layer, made)
    try:
        return made(**settings, name=name, dtype=layer.dtype_policy.name, trainable=layer.trainable)
    except (TypeError, ValueError) as error:
        raise _unsupported(layer, str(error).splitlines()[0]) from error


def _settings(layer: keras.layers.Layer, made: type[keras3.layers.Layer]) -> dict[str, object]:
    """Return the constructor's arguments; a setting that Keras 3 lacks must change nothing."""
    kind = type(layer).__name__
    settings: dict[str, object] = {}
    taken = inspect.signature(made.__init__).parameters
    config = {key: value for key, value in layer.get_config().items() if key not in _DROPPED}
    for key in _INNER:
        if key in config and isinstance(getattr(layer, key, None), keras.layers.Layer):
            inner = getattr(layer, key)
            config[key] = _counterpart(inner, inner.name)
    if kind == "BatchNormalization":
        (config["axis"],) = tf.nest.flatten(config["axis"])
    if kind == "Bidirectional":
        config["layer"] = config.pop("forward_layer", config.get("layer"))
    for key, value in config.items():
        name = _RENAMED.get((kind, key), key)
        if name in taken:
            settings[name] = value
        elif not (
            value in _IDLE_VALUES or (key, value) == ("groups", 1) or key.endswith("_initializer")
        ):
            raise _unsupported(layer, f"Keras 3 has no setting for {key}={value!r}")
    return settings


def _slice(tensor: keras3.KerasTensor, slice_spec: Json) -> keras3.KerasTensor:
    parts = slice_spec if isinstance(slice_spec, tuple | list) else (slice_spec,)
    return tensor[
        tuple(
            slice(s.get("start"), s.get("stop"), s.get("step")) if isinstance(s, dict) else s
            for s in parts
        )
    ]


def _copy_weights(layer: keras.layers.Layer, target: keras3.layers.Layer) -> None:
    values = layer.get_weights()
    if not values:
        return
    if [w.shape for w in values] != [tuple(w.shape) for w in target.get_weights()]:
        raise _unsupported(layer, "its weights have other shapes in Keras 3")
    target.set_weights(values)
    if isinstance(target, keras3.layers.Normalization):
        target.finalize_state()


def _one_or_all(values: Sequence[Tensors]) -> Tensors:
    return values[0] if len(values) == 1 else values


def _unsupported(layer: keras.layers.Layer, reason: str) -> ModelError:
    return ModelError(
        f"Keras 3 cannot take over {type(layer).__name__}: {reason}",
        subject=layer.name,
        hint="replace that layer, or export a SavedModel, which Keras 3 reads by TFSMLayer",
    )
