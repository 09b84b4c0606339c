"""Layers that convert to loops, which the converter's calibration crashes on (SIGSEGV)."""

from __future__ import annotations

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
