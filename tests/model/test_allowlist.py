"""The list of layers that a model file may name, against the installed Keras."""

from __future__ import annotations

import inspect
from types import ModuleType

import keras as keras3
import pytest
import tf_keras

from shrink.model.allowlist import LAYERS

REFUSED = {
    *("AbstractRNNCell", "Layer", "Pipeline", "Wrapper"),  # of no use by themselves
    *("DenseFeatures", "FlaxLayer", "JaxLayer", "Lambda", "TFSMLayer", "TorchModuleWrapper"),
}
"""Base classes, and layers that run code or load other models."""


def layers_of(module: ModuleType, base: type) -> set[str]:
    named = ((name, getattr(module, name)) for name in dir(module) if name[0].isupper())
    return {name for name, value in named if inspect.isclass(value) and issubclass(value, base)}


@pytest.mark.parametrize("library", [tf_keras, keras3], ids=["tf-keras", "keras"])
def test_every_layer_of_keras_is_allowed_or_refused_by_name(library: ModuleType) -> None:
    found = layers_of(library.layers, library.layers.Layer)
    assert len(found) > 100
    assert sorted(found - LAYERS - REFUSED) == [], "decide whether these run code or read files"


def test_every_allowed_layer_is_one_of_keras() -> None:
    known = layers_of(tf_keras.layers, tf_keras.layers.Layer)
    known |= layers_of(keras3.layers, keras3.layers.Layer)
    assert sorted(LAYERS - known) == []
