"""Rewrites of a model's function before conversion."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras as keras

_CONVOLUTIONAL = (keras.layers.ConvLSTM1D, keras.layers.ConvLSTM2D, keras.layers.ConvLSTM3D)


def has_graph(layer: Any) -> bool:
    """Tell functional and sequential models from subclassed ones, which cannot be cloned."""
    return isinstance(layer, keras.Model) and bool(layer._is_graph_network)


def names_of(model: keras.Model, chosen: Callable[[Any], bool]) -> list[str]:
    """Return the names of a model's layers that are chosen, those of models in it with a path."""
    if not has_graph(model):
        return []
    names: list[str] = []
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            names += [f"{layer.name}/{name}" for name in names_of(layer, chosen)]
        elif chosen(layer):
            names.append(layer.name)
    return names


def is_loop(layer: Any) -> bool:
    """Whether a layer converts to a loop over steps. An LSTM is one operator of TFLite."""
    inner = _without_wrapper(layer)
    if not isinstance(inner, keras.layers.RNN) or inner.unroll:
        return False
    masked = any(getattr(tensor, "_keras_mask", None) is not None for tensor in _given(layer))
    begun = any(len(tf.nest.flatten(node.input_tensors)) > 1 for node in layer.inbound_nodes)
    return masked or begun or not _is_one_operator(inner)


def can_be_unrolled(layer: Any) -> bool:
    """Whether a layer's loop can be written as its steps one after the other."""
    known = is_loop(layer) and all(tensor.shape[1] for tensor in _given(layer))
    return known and not isinstance(_without_wrapper(layer), _CONVOLUTIONAL)


def _without_wrapper(layer: Any) -> Any:
    return layer.layer if isinstance(layer, keras.layers.Bidirectional) else layer


def _given(layer: Any) -> list[Any]:
    """Return the sequence that each call of a layer is given."""
    return [tf.nest.flatten(node.input_tensors)[0] for node in layer.inbound_nodes]


def _is_one_operator(layer: Any) -> bool:
    """Whether TFLite has one operator for all steps of a recurrent layer."""
    kinds = (keras.activations.tanh, keras.activations.sigmoid)
    return (
        type(layer) is keras.layers.LSTM
        and (layer.activation, layer.recurrent_activation) == kinds
        and layer.use_bias
        and not layer.recurrent_dropout
        and not layer.return_state
    )


def unrolled(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a recurrent layer, wrapped or not, with `unroll` set."""
    wrapped = [key for key in ("layer", "backward_layer") if key in config]
    if not wrapped:
        return {**config, "unroll": True}
    found = dict(config)
    for key in wrapped:
        found[key] = {**config[key], "config": unrolled(config[key]["config"])}
    return found


def for_conversion(
    model: keras.Model, *, to_integers: bool = False
) -> tuple[keras.Model, tuple[str, ...]]:
    """Return a model that converts well, with the same inputs, weights and outputs.

    - An average pooling that covers its whole input becomes a mean over height and width. TFLite's
      int8 AVERAGE_POOL_2D forces its output to keep the scale of its input; a MEAN has a scale of
      its own, and a mean of many values needs a finer one.
    - Layers of a mixed precision compute in float32, in which their weights are stored: TFLite
      has no kernels for float16 activations.
    - The steps of a GRU or another loop are written one after the other, to become integers: the
      converter's calibration crashes on loops. An LSTM is one operator of TFLite.
    - What `model.add_metric` counts, in variables that each call would write, is left out.

    Args:
        model: it is left untouched; a subclassed model, which cannot be cloned, stays as it is.
        to_integers: whether activations become integers.

    Returns:
        The model, `model` itself where there is nothing to rewrite, and a note per rewrite.
    """
    model = _without_metrics(model)
    notes = [
        f"{name}: average over the whole input written as a mean"
        for name in names_of(model, _covers_its_whole_input)
    ]
    if to_integers:
        loops = names_of(model, can_be_unrolled)
        notes += [f"{name}: steps written one after the other, for integers" for name in loops]
    if _has_mixed_precision(model):
        notes.append("converted to compute in float32, not in the mixed precision of training")
    if not notes:
        return model, ()
    try:
        clone = functools.partial(_clone, to_integers=to_integers)
        rewritten = keras.models.clone_model(model, clone_function=clone)
    except NotImplementedError as error:  # a custom layer without get_config
        return model, (f"converted as it is, as it cannot be cloned: {error}",)
    rewritten.set_weights(model.get_weights())
    return rewritten, tuple(notes)


def _without_metrics(model: keras.Model) -> keras.Model:
    if not has_graph(model) or not any(type(x).__name__ == "AddMetric" for x in model.layers):
        return model
    return keras.Model(model.input, model.output, name=model.name)


def _covers_its_whole_input(layer: Any) -> bool:
    if not isinstance(layer, keras.layers.AveragePooling2D):
        return False
    return all(_covers(layer, node.input_shapes) for node in layer.inbound_nodes)


def _covers(layer: keras.layers.AveragePooling2D, shape: tuple[int | None, ...]) -> bool:
    first = 2 if layer.data_format == "channels_first" else 1
    output = layer.compute_output_shape(shape)
    sides = zip(layer.pool_size, shape[first : first + 2], output[first : first + 2], strict=True)
    # "same" padding adds zeros that the average leaves out, so a larger pool is still the mean.
    return all(side is not None and pool >= side and out == 1 for pool, side, out in sides)


def _clone(layer: Any, *, to_integers: bool) -> Any:
    if has_graph(layer):
        clone = functools.partial(_clone, to_integers=to_integers)
        return keras.models.clone_model(layer, clone_function=clone)
    if _covers_its_whole_input(layer):
        return keras.layers.GlobalAveragePooling2D(
            data_format=layer.data_format, keepdims=True, name=layer.name
        )
    config = _in_float32(layer.get_config())
    if to_integers and can_be_unrolled(layer):
        config = unrolled(config)
    return layer.__class__.from_config(config)


def _has_mixed_precision(model: keras.Model) -> bool:
    parts = model._flatten_layers()
    return has_graph(model) and any(part.compute_dtype != part.variable_dtype for part in parts)


def _in_float32(config: Any) -> Any:
    """Return a layer's configuration with every mixed policy, nested layers' too, as float32."""
    if isinstance(config, list | tuple):  # also TensorFlow's wrappers, which copy badly
        items = [_in_float32(item) for item in config]
        return tuple(items) if isinstance(config, tuple) else items
    if not isinstance(config, dict):
        return config
    return {
        key: "float32" if key == "dtype" and _is_mixed(value) else _in_float32(value)
        for key, value in config.items()
    }


def _is_mixed(dtype: Any) -> bool:
    """Tell a mixed policy, which a configuration holds by name or as a serialized object."""
    name = dtype.get("config", {}).get("name") if isinstance(dtype, dict) else dtype
    return isinstance(name, str) and name.startswith("mixed_")
