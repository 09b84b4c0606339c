"""Keras 3 layers and values as tf-keras ones.

Definitions: keras/src/backend/tensorflow/nn.py of Keras 3.15.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import first_line
from shrink.base.keras_internals import node_of, rename
from shrink.base.types import Json, JsonObject, Tensors

Activation: TypeAlias = Callable[[Tensors], tf.Tensor]
"""A function of a layer's symbolic output; that of some layers takes several."""


def rename_added_layers(outputs: Tensors, own: Iterable[keras.layers.Layer]) -> None:
    """Give the layers before these outputs other names where the file's layers have them.

    tf-keras numbers the names that it gives, but does not look whether one was given before.

    Args:
        outputs: symbolic tensors, in any structure.
        own: the layers that stand for those of the file, which keep their names.
    """
    own_layers = {id(layer): layer for layer in own}
    taken = {layer.name for layer in own_layers.values()}
    for layer in _layers_before(tf.nest.flatten(outputs)):
        if id(layer) in own_layers:
            continue
        names = itertools.chain([layer.name], (f"{layer.name}_{n}" for n in itertools.count(1)))
        rename(layer, next(name for name in names if name not in taken))
        taken.add(layer.name)


def _layers_before(tensors: list[tf.Tensor]) -> Iterator[keras.layers.Layer]:
    """Yield every layer that these tensors come from, once."""
    seen: set[int] = set()
    yielded: set[int] = set()
    waiting = [*tensors]
    while waiting:
        node = node_of(waiting.pop())
        if id(node) in seen:
            continue
        seen.add(id(node))
        if id(node.layer) not in yielded:
            yielded.add(id(node.layer))
            yield node.layer
        waiting += node.keras_inputs


def plain_value(value: Json, tensor: Callable[[str, int, int], tf.Tensor] | None = None) -> Json:
    """Return lists, tuples, slices and arrays in place of their serialized forms.

    Args:
        value: parsed JSON.
        tensor: gives the tensor of a layer's name, node and index.
    """
    if isinstance(value, list):
        return [plain_value(item, tensor) for item in value]
    if not isinstance(value, Mapping):
        return value
    kind, config = value.get("class_name"), value.get("config")
    if kind == "__keras_tensor__" and tensor is not None:
        return tensor(*value["config"]["keras_history"])
    if kind == "__tuple__":
        return tuple(plain_value(item, tensor) for item in value.get("items", config))
    if kind == "__slice__":
        parts = [plain_value(value["config"][key], tensor) for key in ("start", "stop", "step")]
        return slice(*parts)
    if kind == "__ellipsis__":
        return Ellipsis
    if kind in ("__numpy__", "__tensor__"):
        return np.asarray(value["config"]["value"], value["config"]["dtype"])
    return {key: plain_value(item, tensor) for key, item in value.items()}


SAME = frozenset(
    {"elu", "exponential", "gelu", "linear", "mish", "relu", "selu", "sigmoid", "softmax",
     "softplus", "softsign", "swish", "tanh"}
)  # fmt: skip
"""Equal in both; `hard_sigmoid` is not: tf-keras has another slope."""

RENAMED = {"silu": "swish", "hard_swish": "hard_silu"}


def hard_sigmoid(x: tf.Tensor) -> tf.Tensor:
    """Return relu6(x + 3) / 6."""
    shifted = keras.layers.Rescaling(1.0, offset=3.0)(x)
    return keras.layers.Rescaling(1.0 / 6.0)(keras.layers.ReLU(max_value=6.0)(shifted))


def hard_silu(x: tf.Tensor) -> tf.Tensor:
    """Return x · relu6(x + 3) / 6 (Howard et al. 2019)."""
    return keras.layers.Multiply()([x, hard_sigmoid(x)])


def glu(x: tf.Tensor, axis: int = -1) -> tf.Tensor:
    """Return the first half times the sigmoid of the second (Dauphin et al. 2017)."""
    first, second = tf.split(x, 2, axis=axis)
    return tf.math.multiply(first, tf.math.sigmoid(second))


def leaky_relu(x: tf.Tensor, negative_slope: float = 0.2) -> tf.Tensor:
    """Return x, its negative part times the slope."""
    return keras.layers.LeakyReLU(alpha=negative_slope)(x)


FUNCTIONS: dict[str, Callable[..., tf.Tensor]] = {
    "glu": glu,
    "hard_sigmoid": hard_sigmoid,
    "hard_silu": hard_silu,
    "hard_tanh": lambda x: tf.clip_by_value(x, -1.0, 1.0),
    "leaky_relu": leaky_relu,
    "log_sigmoid": lambda x: tf.math.log_sigmoid(x),
    "log_softmax": lambda x, axis=-1: tf.nn.log_softmax(x, axis=axis),
    "relu6": lambda x: keras.layers.ReLU(max_value=6.0)(x),
}
"""Activations that take more than one layer of tf-keras, as functions of symbolic tensors."""


MODEL_CLASSES = frozenset({"Functional", "Sequential", "Model"})
_BASE_KEYS = frozenset({"name", "trainable", "dtype", "zero_output_for_mask"})
_RENAMED_KEYS = {("LeakyReLU", "negative_slope"): "alpha"}
_OBJECT_SUFFIXES = {
    "_initializer": keras.initializers,
    "_regularizer": keras.regularizers,
    "_constraint": keras.constraints,
}
_INNER_KEYS = frozenset({"layer", "backward_layer", "cell"})
_IDLE_KEYS = frozenset(
    {"seed", "renorm_clipping", "renorm_momentum", "use_cudnn", "value_range", "lora_rank",
     "lora_alpha", "quantization_config", "gptq_unpacked_column_size"}
)  # fmt: skip
"""Keys that change nothing of what a layer computes from its stored weights when it infers.

A file has the kernels with LoRA's factors merged in.
"""
_IDLE_VALUES = (None, False, "channels_last", "auto", "constant", 0, 0.0)
_CLASS_NAMES = {"IdentityInitializer": "Identity", "OrthogonalInitializer": "Orthogonal"}
AUGMENTATION = frozenset(
    {"AugMix", "CutMix", "Equalization", "MixUp", "RandAugment", "Solarization"}
    | {f"Random{name}" for name in (
        "Brightness", "ColorDegeneration", "ColorJitter", "Contrast", "ElasticTransform", "Erasing",
        "Flip", "GaussianBlur", "Grayscale", "Hue", "Invert", "Perspective", "Posterization",
        "Rotation", "Saturation", "Sharpness", "Shear", "Translation", "Zoom",
    )}
)  # fmt: skip
"""Layers that give back their input when a model infers."""
QUANTIZED_POLICIES = frozenset(
    {"QuantizedDTypePolicy", "QuantizedFloat8DTypePolicy", "Int4DTypePolicy", "GPTQDTypePolicy",
     "AWQDTypePolicy"}
)  # fmt: skip
"""Policies of layers that Keras 3 quantized; `quantized.py` gives their float weights."""
HALF = ("float16", "bfloat16")
"""Policies of weights and arithmetic of 16 bits: training and conversion take float32 for them."""


class UnsupportedLayerError(Exception):
    """Something of a Keras 3 model has no counterpart in tf-keras.

    Args:
        layer: which layer, operation or weight.
        reason: why.
        hint: what to do instead.
    """

    def __init__(self, layer: str, reason: str, hint: str | None = None) -> None:
        super().__init__(f"{layer}: {reason}")
        self.layer, self.reason, self.hint = layer, reason, hint


@dataclass
class ConvertedLayer:
    """What stands for one layer of Keras 3: a layer, and what its activation takes after it.

    Attributes:
        label: class and name, for messages.
        layer: of tf-keras; None where an activation needs no layer of its own.
        after: applied to the layer's output.
        reshape: whether the weights have other shapes with the same values.
    """

    label: str
    layer: keras.layers.Layer | None
    after: Activation | None = None
    reshape: bool = False

    def __call__(self, *args: Tensors, **kwargs: object) -> Tensors:
        """Call the layer, then its activation."""
        result = args[0] if self.layer is None else self.layer(*args, **kwargs)
        return self.after(result) if self.after is not None else result


def convert_layer(serialized: JsonObject) -> ConvertedLayer:
    """Return what computes the same as a serialized layer of Keras 3.

    Raises:
        UnsupportedLayerError: there is nothing in tf-keras that does.
    """
    kind = serialized["class_name"]
    config = dict(serialized["config"])
    label = f"{kind} {config.get('name')!r}"
    custom = keras.saving.get_registered_object(serialized.get("registered_name") or kind)
    if custom is not None:
        return ConvertedLayer(label, _custom_layer(custom, config, label))
    if kind in _SPECIAL:
        return _SPECIAL[kind](config, label)
    if kind in AUGMENTATION:
        return ConvertedLayer(label, _augmentation(kind, config, label))
    config, after = _without_activation(config, label)
    if kind == "Activation" and after is not None:
        return ConvertedLayer(label, None, after)
    return ConvertedLayer(label, _layer(kind, config, label), after)


def _layer(kind: str, config: JsonObject, label: str) -> keras.layers.Layer:
    cls = getattr(keras.layers, kind, None)
    if cls is None:
        raise UnsupportedLayerError(label, "tf-keras has no such layer")
    # The keywords that a layer's constructors take.
    names = set(_BASE_KEYS)
    for base in cls.__mro__:
        if base in (keras.layers.Layer, object):
            break
        if "__init__" in vars(base):
            parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
            names |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
    accepted = names - {"self"}
    arguments = {}
    for key, value in config.items():
        key = _RENAMED_KEYS.get((kind, key), key)
        if key == "zero_output_for_mask" and not hasattr(cls, "get_initial_state"):
            continue
        if key in accepted:
            arguments[key] = _argument(key, value, label)
        elif key not in _IDLE_KEYS and (
            isinstance(value, list | dict) or value not in _IDLE_VALUES
        ):
            raise UnsupportedLayerError(label, f"tf-keras has no {key} there, and it is {value!r}")
    return cls(**arguments)


def _augmentation(kind: str, config: JsonObject, label: str) -> keras.layers.Layer:
    """Return a layer of tf-keras, or one that does nothing, as augmentation does at inference."""
    try:
        return _layer(kind, config, label)
    except UnsupportedLayerError:
        return keras.layers.Activation("linear", name=config["name"])


def _custom_layer(custom: object, config: JsonObject, label: str) -> keras.layers.Layer:
    """Return a layer of a user's class, which has to take the configuration that it gave."""
    if not (isinstance(custom, type) and issubclass(custom, keras.layers.Layer)):
        raise UnsupportedLayerError(
            label,
            "among the custom objects it is no layer of tf-keras",
            "write the class with `import tf_keras as keras`",
        )
    kind: type[keras.layers.Layer] = custom
    arguments = dict(plain_value(config))
    if "dtype" in config:
        arguments["dtype"] = _dtype(config["dtype"], label)
    try:
        return kind.from_config(arguments)
    except Exception as error:  # it raises whatever its author does
        why = f"its from_config raises {type(error).__name__}: {first_line(error, 200)}"
        raise UnsupportedLayerError(label, why) from error


def _argument(key: str, value: Json, label: str) -> object:
    if key == "dtype":
        return _dtype(value, label)
    if key in _INNER_KEYS and isinstance(value, dict):
        return _inner_layer(value, label)
    if key == "cells":
        return [_inner_layer(cell, label) for cell in value]
    if key == "activation" or key.endswith("_activation"):
        return _activation_name(value, label, key)
    for suffix, room in _OBJECT_SUFFIXES.items():
        if key.endswith(suffix):
            # An initializer, regularizer or constraint.
            if value is None or isinstance(value, str):
                return value
            name = _CLASS_NAMES.get(value["class_name"], value["class_name"])
            cls = getattr(room, name, None)
            if cls is None and room is keras.initializers:
                return "zeros"  # the weights are loaded, whatever they began with
            if cls is None:
                raise UnsupportedLayerError(label, f"tf-keras has no {name}")
            config = plain_value(value.get("config") or {})
            accepted = inspect.signature(cls.__init__).parameters
            return cls(**{key: item for key, item in config.items() if key in accepted})
    return plain_value(value)


def _inner_layer(serialized: JsonObject, label: str) -> keras.layers.Layer:
    """Return the one layer for a layer inside a wrapper; what needs several cannot stand there."""
    inner = f"{serialized['class_name']} within {label}"
    if serialized["class_name"] in MODEL_CLASSES:
        raise UnsupportedLayerError(inner, "a model inside a wrapper")
    converted = convert_layer(serialized)
    if converted.after is not None or converted.layer is None or converted.reshape:
        raise UnsupportedLayerError(inner, "its activation takes several layers in tf-keras")
    return converted.layer


def _dtype(value: Json, label: str) -> str | keras.mixed_precision.Policy | None:
    kind = value.get("class_name") if isinstance(value, Mapping) else "DTypePolicy"
    config = value["config"] if isinstance(value, Mapping) else {"name": value}
    name = config.get("source_name") if kind in QUANTIZED_POLICIES else config.get("name")
    if kind not in ("DTypePolicy", "FloatDTypePolicy", *QUANTIZED_POLICIES):
        raise UnsupportedLayerError(label, f"its dtype policy is {name or kind}")
    if name in HALF:
        return "float32"
    return keras.mixed_precision.Policy(name) if str(name).startswith("mixed_") else name


def _function_name(value: Json, label: str) -> str:
    """Return the name of an activation, whichever way it was written."""
    if value is None:
        return "linear"
    if isinstance(value, Mapping):
        value = value["config"] if value.get("class_name") == "function" else value["class_name"]
    if not isinstance(value, str):
        raise UnsupportedLayerError(label, "its activation has no name")
    return RENAMED.get(value, value)


def _activation_name(value: Json, label: str, key: str) -> str:
    name = _function_name(value, label)
    if name not in SAME:
        raise UnsupportedLayerError(
            label, f"its {key} {name!r} is not what tf-keras computes by that name"
        )
    return name


def _without_activation(config: JsonObject, label: str) -> tuple[JsonObject, Activation | None]:
    """Return the configuration with an activation that tf-keras has, and what to do after it."""
    if "activation" not in config or "recurrent_activation" in config:
        return config, None
    value = config["activation"]
    if isinstance(value, dict) and hasattr(keras.layers, str(value.get("class_name"))):
        return {**config, "activation": "linear"}, convert_layer(value)
    name = _function_name(value, label)
    if name in SAME:
        return {**config, "activation": name}, None
    if name not in FUNCTIONS:
        raise UnsupportedLayerError(label, f"tf-keras has no activation {name!r}")
    return {**config, "activation": "linear"}, FUNCTIONS[name]


def _layer_scale(config: JsonObject, label: str) -> ConvertedLayer:
    """A factor per channel (ConvNeXt): a depthwise convolution of 1 x 1 that can be trained."""
    layer = keras.layers.DepthwiseConv2D(
        1, use_bias=False, name=config["name"], dtype=_dtype(config.get("dtype"), label)
    )
    return ConvertedLayer(label, layer, reshape=True)


def _stochastic_depth(config: JsonObject, label: str) -> ConvertedLayer:
    """A whole example's branch dropped: dropout with one draw per example."""
    shape = (None, 1, 1, 1)
    dtype = _dtype(config.get("dtype"), label)
    rate, name = config["drop_path_rate"], config["name"]
    return ConvertedLayer(
        label, keras.layers.Dropout(rate, noise_shape=shape, name=name, dtype=dtype)
    )


def _scaled_sum(config: JsonObject, label: str) -> ConvertedLayer:
    """`a + scale * b` (Inception-ResNet)."""
    dtype, name = _dtype(config.get("dtype"), label), config["name"]
    scale = keras.layers.Rescaling(config["scale"], name=f"{name}_scale", dtype=dtype)
    add = keras.layers.Add(name=name, dtype=dtype)
    return ConvertedLayer(label, None, lambda both: add([both[0], scale(both[1])]))


_SPECIAL: dict[str, Callable[[JsonObject, str], ConvertedLayer]] = {
    "LayerScale": _layer_scale,
    "StochasticDepth": _stochastic_depth,
    "CustomScaleLayer": _scaled_sum,
}
