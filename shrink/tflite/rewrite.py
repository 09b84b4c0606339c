"""Rewrites of a float Keras model that leave its outputs alone and help integer arithmetic."""

from __future__ import annotations

from typing import Any

import tf_keras as keras


def for_conversion(model: keras.Model) -> tuple[keras.Model, tuple[str, ...]]:
    """Return a model that converts well, with the same inputs, weights and outputs.

    - An average pooling that covers its whole input becomes a mean over height and width. TFLite's
      int8 AVERAGE_POOL_2D forces its output to keep the scale of its input; a MEAN has a scale of
      its own, and a mean of many values needs a finer one.
    - Layers of a mixed precision compute in float32, in which their weights are stored: TFLite
      has no kernels for float16 activations.

    Args:
        model: it is left untouched; a subclassed model, which cannot be cloned, stays as it is.

    Returns:
        The model, `model` itself where there is nothing to rewrite, and a note per rewrite.
    """
    notes = [f"{name}: average over the whole input written as a mean" for name in _pools(model)]
    if _has_mixed_precision(model):
        notes.append("converted to compute in float32, not in the mixed precision of training")
    if not notes:
        return model, ()
    try:
        rewritten = keras.models.clone_model(model, clone_function=_clone)
    except NotImplementedError as error:  # a custom layer without get_config
        return model, (f"converted as it is, as it cannot be cloned: {error}",)
    rewritten.set_weights(model.get_weights())
    return rewritten, tuple(notes)


def _pools(model: keras.Model) -> list[str]:
    names: list[str] = []
    if not _has_graph(model):
        return names
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            names += [f"{layer.name}/{name}" for name in _pools(layer)]
        elif _covers_its_whole_input(layer):
            names.append(layer.name)
    return names


def _has_graph(layer: Any) -> bool:
    """Tell functional and sequential models from subclassed ones, which cannot be cloned."""
    return isinstance(layer, keras.Model) and bool(layer._is_graph_network)


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


def _clone(layer: Any) -> Any:
    if _has_graph(layer):
        return keras.models.clone_model(layer, clone_function=_clone)
    if _covers_its_whole_input(layer):
        return keras.layers.GlobalAveragePooling2D(
            data_format=layer.data_format, keepdims=True, name=layer.name
        )
    return layer.__class__.from_config(_in_float32(layer.get_config()))


def _has_mixed_precision(model: keras.Model) -> bool:
    parts = (part for part in model.submodules if isinstance(part, keras.layers.Layer))
    return _has_graph(model) and any(part.compute_dtype != part.variable_dtype for part in parts)


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
