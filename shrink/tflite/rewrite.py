"""Rewrites of a float Keras model that leave its outputs alone and help integer arithmetic."""

from __future__ import annotations

from typing import Any

import tf_keras as keras


def with_global_pools_as_means(model: keras.Model) -> tuple[keras.Model, tuple[str, ...]]:
    """Write every average pooling that covers its whole input as a mean over height and width.

    TFLite's int8 AVERAGE_POOL_2D forces its output to keep the scale of its input; a MEAN has a
    scale of its own, and a mean of many values needs a finer one.

    Args:
        model: a functional model; it is left untouched.

    Returns:
        A model with the same inputs, weights and outputs, and the names of the pooling layers
        that were written as means. `model` itself where there is none.
    """
    names = tuple(_global_pools(model))
    if not names:
        return model, ()
    rewritten = keras.models.clone_model(model, clone_function=_clone)
    rewritten.set_weights(model.get_weights())
    return rewritten, names


def _global_pools(model: keras.Model) -> list[str]:
    names: list[str] = []
    if not _has_graph(model):
        return names
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            names += [f"{layer.name}/{name}" for name in _global_pools(layer)]
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
    return layer.__class__.from_config(layer.get_config())
