"""The graph of a Keras 3 model, called through again with tf-keras' layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import first_line
from shrink.base.keras_internals import made_by
from shrink.base.types import Json, JsonObject, Tensors
from shrink.model.keras3.layers import (
    HALF,
    MODEL_CLASSES,
    ConvertedLayer,
    UnsupportedLayerError,
    convert_layer,
    plain_value,
    rename_added_layers,
)
from shrink.model.keras3.ops import call_op

_RECURRENT = frozenset({"LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional", "ConvLSTM1D"}) | {
    "ConvLSTM2D",
    "ConvLSTM3D",
}


@dataclass
class ConvertedModel:
    """A rebuilt model with its layers in the order of the Keras 3 file.

    Attributes:
        model: of tf-keras.
        layers: class name in the file and what stands for it; operations are not among them,
            nested models are, as a `ConvertedModel`.
    """

    model: keras.Model
    layers: list[tuple[str, ConvertedLayer | ConvertedModel]] = field(default_factory=list)


def build_model(config: JsonObject) -> ConvertedModel:
    """Return the tf-keras model of a serialized Keras 3 model, its weights still random.

    Raises:
        UnsupportedLayerError: something has no counterpart in tf-keras.
    """
    if config.get("class_name") == "Sequential":
        return _sequential(config["config"], config.get("build_config"))
    if config.get("class_name") in MODEL_CLASSES and "layers" in config.get("config", {}):
        return _functional(config["config"])
    raise UnsupportedLayerError(
        str(config.get("class_name")), "it is neither functional nor sequential"
    )


def _member(serialized: JsonObject) -> ConvertedLayer | ConvertedModel:
    if serialized["class_name"] in MODEL_CLASSES:
        return build_model(serialized)
    return convert_layer(serialized)


def _input(config: JsonObject) -> tf.Tensor:
    shape = config.get("batch_shape") or config["batch_input_shape"]
    if config.get("sparse") or config.get("ragged"):
        raise UnsupportedLayerError(config["name"], "its input is sparse or ragged")
    dtype = config.get("dtype") or "float32"
    dtype = dtype if isinstance(dtype, str) else dtype["config"]["name"]
    dtype = "float32" if dtype in HALF else dtype
    return keras.Input(shape[1:], batch_size=shape[0], dtype=dtype, name=config["name"])


def _sequential(config: JsonObject, build_config: JsonObject | None) -> ConvertedModel:
    members = [m for m in config["layers"] if m["class_name"] != "InputLayer"]
    inputs = [m["config"] for m in config["layers"] if m["class_name"] == "InputLayer"]
    converted = [(member["class_name"], _member(member)) for member in members]
    if inputs:
        tensor = _input(inputs[0])
    else:
        shape = config.get("build_input_shape") or (build_config or {}).get("input_shape")
        if not shape:
            raise UnsupportedLayerError(
                config["name"], "it was saved before it knew its input's shape"
            )
        tensor = keras.Input(shape[1:], batch_size=shape[0])
    layers = _layers_of(converted)
    if all(_is_single(item) for _, item in converted):
        model = keras.Sequential([tensor, *layers], name=config["name"])
    else:
        output = tensor
        for _, item in converted:
            output = _callable(item)(output)
        rename_added_layers(output, [_entry(tensor), *layers])
        model = keras.Model(tensor, output, name=config["name"])
    model.trainable = config.get("trainable", True)
    return _with_trainable(ConvertedModel(model, converted), config)


def _layers_of(
    converted: Sequence[tuple[str, ConvertedLayer | ConvertedModel]],
) -> list[keras.layers.Layer]:
    """Return what stands for the layers of the file, without those that need no layer."""
    layers = [
        item.model if isinstance(item, ConvertedModel) else item.layer for _, item in converted
    ]
    return [layer for layer in layers if layer is not None]


def _entry(tensor: tf.Tensor) -> keras.layers.Layer:
    return made_by(tensor)[0]


def _is_single(item: ConvertedLayer | ConvertedModel) -> bool:
    return isinstance(item, ConvertedModel) or (item.after is None and item.layer is not None)


def _callable(item: ConvertedLayer | ConvertedModel) -> Callable[..., Tensors]:
    return item.model if isinstance(item, ConvertedModel) else item


def _with_trainable(converted: ConvertedModel, config: JsonObject) -> ConvertedModel:
    """Freeze again what was frozen; setting it on a model sets it on all its layers."""
    by_name = {layer["config"].get("name"): layer["config"] for layer in config["layers"]}
    for layer in converted.model.layers:
        frozen = by_name.get(layer.name, {}).get("trainable", True) is False
        if frozen or not converted.model.trainable:
            layer.trainable = False
    return converted


def _functional(config: JsonObject) -> ConvertedModel:
    walk = _Walk(config)
    walk.run()
    inputs = walk.structure(config["input_layers"])
    outputs = walk.structure(config["output_layers"])
    entries = [_entry(tensor) for tensor in _flat(inputs)]
    rename_added_layers(outputs, [*entries, *_layers_of(walk.layers)])
    model = keras.Model(inputs, outputs, name=config["name"])
    # Keras 3 names the groups of weights by all layers of the file, inputs too.
    return _with_trainable(ConvertedModel(model, walk.layers), config)


class _Walk:
    """Calls every layer of a functional configuration as soon as its inputs are there."""

    def __init__(self, config: JsonObject) -> None:
        self.layers: list[tuple[str, ConvertedLayer | ConvertedModel]] = []
        self._nodes: list[tuple[JsonObject, int, Callable[..., Tensors]]] = []
        self._tensors: dict[tuple[str, int], Tensors] = {}
        for serialized in config["layers"]:
            self._enter(serialized)

    def _enter(self, serialized: JsonObject) -> None:
        name, kind = _name(serialized), serialized["class_name"]
        if kind == "InputLayer":
            self._tensors[name, 0] = _input(serialized["config"])
            return
        if str(serialized.get("module", "")).startswith("keras.src.ops."):
            call = _op_call(serialized)
        else:
            item = _member(serialized)
            self.layers.append((kind, item))
            call = _layer_call(_callable(item), serialized)
        for index in range(len(serialized["inbound_nodes"])):
            self._nodes.append((serialized, index, call))

    def run(self) -> None:
        """Call all nodes; an order is found by trying, as files keep none that can be relied on."""
        waiting = self._nodes
        while waiting:
            left = [node for node in waiting if not self._call(*node)]
            if len(left) == len(waiting):
                raise UnsupportedLayerError(_name(left[0][0]), "its inputs come from nowhere")
            waiting = left

    def structure(self, value: Json) -> Tensors:
        """Return the tensors that a structure of [layer, node, tensor] means."""
        if isinstance(value, Mapping):
            return {key: self.structure(item) for key, item in value.items()}
        if len(value) == 3 and isinstance(value[0], str):
            return self._tensor(*value)
        return [self.structure(item) for item in value]

    def _tensor(self, name: str, node: int, index: int) -> tf.Tensor:
        return _flat(self._tensors[name, node])[index]

    def _call(self, serialized: JsonObject, index: int, call: Callable[..., Tensors]) -> bool:
        node = serialized["inbound_nodes"][index]
        if any((name, at) not in self._tensors for name, at, _ in _histories(node)):
            return False
        args = plain_value(node["args"], self._tensor)
        kwargs = plain_value(node["kwargs"], self._tensor)
        try:
            self._tensors[_name(serialized), index] = call(*args, **kwargs)
        except UnsupportedLayerError:
            raise
        except Exception as error:  # tf-keras raises whatever its layers raise
            why = f"{type(error).__name__}: {first_line(error)}"
            label = f"{serialized['class_name']} {_name(serialized)!r}"
            raise UnsupportedLayerError(label, why) from error
        return True


def _name(serialized: JsonObject) -> str:
    return str(serialized.get("name") or serialized["config"]["name"])


def _op_call(serialized: JsonObject) -> Callable[..., Tensors]:
    config = plain_value(serialized["config"])

    def call(*args: Tensors, **kwargs: object) -> Tensors:
        return call_op(serialized["module"], serialized["class_name"], config, args, kwargs)

    return call


def _layer_call(layer: Callable[..., Tensors], serialized: JsonObject) -> Callable[..., Tensors]:
    kind = serialized["class_name"]
    recurrent = kind in _RECURRENT
    # Keras 3 notes a value of `training` there whatever the caller said.
    ignores_training = recurrent or kind.startswith("Random")

    def call(*args: Tensors, **kwargs: object) -> Tensors:
        named = {key: value for key, value in kwargs.items() if value is not None}
        if ignores_training:
            named.pop("training", None)
        if recurrent:
            for key, value in zip(("initial_state", "mask"), args[1:], strict=False):
                named[key] = value
            args = args[:1]
        return layer(*args, **named)

    return call


def _histories(value: Json) -> list[tuple[str, int, int]]:
    if isinstance(value, Mapping):
        if value.get("class_name") == "__keras_tensor__":
            name, node, index = value["config"]["keras_history"]
            return [(name, node, index)]
        return [history for item in value.values() for history in _histories(item)]
    if isinstance(value, list):
        return [history for item in value for history in _histories(item)]
    return []


def _flat(value: Tensors) -> list[tf.Tensor]:
    if isinstance(value, Mapping):
        return [tensor for key in sorted(value) for tensor in _flat(value[key])]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _flat(item)]
    return [value]
