"""Checks before training that the model can be saved as a .keras file."""

from __future__ import annotations

import json
from pathlib import Path

import tf_keras as keras

from shrink.base.errors import ModelError, first_line

_SLICE = "SlicingOpLambda"


def check_savable(model: keras.Model, path: Path) -> None:
    """Refuse a model whose configuration the .keras format cannot hold.

    Training would end without an artifact otherwise. Weights are not looked at.

    Args:
        model: a functional model.
        path: of the file that builds it.

    Raises:
        ModelError: a layer's configuration, or what it is called with, is not plain data.
    """
    why = _why_not(model)
    if why is None:
        return
    layer, slices = _first_unsavable(model)
    hint = (
        "slice every axis by itself, x[:, :, 0] for x[..., 0], or call tf.gather(x, 0, axis=-1)"
        if slices
        else "give the layer a get_config() of numbers, texts and lists, and call it with such"
    )
    named = f"the layer {layer!r}" if layer else "the model"
    raise ModelError(
        f"{named} cannot be saved in a .keras file, so that training would be lost: {why}",
        subject=path,
        hint=hint,
    )


def _why_not(part: object) -> str | None:
    """Return what Keras' own serializer says against it; None where it has nothing to say."""
    try:
        json.dumps(keras.saving.serialize_keras_object(part))
    except Exception as error:  # a layer's get_config raises whatever it does
        return first_line(error) or type(error).__name__
    return None


def _first_unsavable(model: keras.Model) -> tuple[str, bool]:
    """Return the name of the first layer that is the cause, and whether it is a slice."""
    for layer in model.layers:
        if _why_not(layer) is not None:
            return layer.name, False
    for layer, config in zip(model.layers, model.get_config()["layers"], strict=False):
        if _why_not(config) is not None:
            return layer.name, type(layer).__name__ == _SLICE
    return "", False
