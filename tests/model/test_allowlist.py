"""The names that a model file may use, against the installed Keras and TensorFlow."""

from __future__ import annotations

import importlib
import inspect
import tomllib
from pathlib import Path
from types import ModuleType

import keras as keras3
import pytest
import tensorflow as tf
import tf_keras
from keras.src.ops.operation import Operation

from shrink.model.allowlist import (
    KERAS_OPS,
    LAYERS,
    OPERATORS,
    SAVER_OPERATORS,
    TENSOR_FUNCTIONS,
)

REFUSED = tomllib.loads((Path(__file__).parent / "refused.toml").read_text("utf-8"))
DECIDE = "decide whether these run code or touch files: allowed.toml or refused.toml"


def layers_of(module: ModuleType, base: type) -> set[str]:
    named = ((name, getattr(module, name)) for name in dir(module) if name[0].isupper())
    return {name for name, value in named if inspect.isclass(value) and issubclass(value, base)}


@pytest.mark.parametrize("library", [tf_keras, keras3], ids=["tf-keras", "keras"])
def test_every_layer_of_keras_is_allowed_or_refused_by_name(library: ModuleType) -> None:
    found = layers_of(library.layers, library.layers.Layer)
    assert len(found) > 100
    assert sorted(found - LAYERS - {*REFUSED["layers"].split()}) == [], DECIDE


def test_every_allowed_layer_is_one_of_keras() -> None:
    known = layers_of(tf_keras.layers, tf_keras.layers.Layer)
    known |= layers_of(keras3.layers, keras3.layers.Layer)
    assert sorted(LAYERS - known) == []


def test_every_operator_of_tensorflow_is_allowed_or_refused_by_name() -> None:
    found = {name for name in dir(tf.raw_ops) if name[0].isupper()}
    refused = {*REFUSED["operators"].split()}
    assert len(found) > 1400
    assert sorted(found - OPERATORS - SAVER_OPERATORS - refused) == [], DECIDE
    assert sorted((OPERATORS | SAVER_OPERATORS) - found) == []
    assert sorted((OPERATORS | SAVER_OPERATORS) & refused) == []


@pytest.mark.parametrize("module", ["", "math", "nn", "linalg", "signal", "image"])
def test_every_function_of_tensorflow_is_allowed_or_refused_by_name(module: str) -> None:
    library = getattr(tf, module) if module else tf
    found = {n for n in dir(library) if n[0] != "_" and inspect.isroutine(getattr(library, n))}
    refused = {*REFUSED["tensor_functions"][module].split()}
    allowed = {name for name in found if f"{module}.{name}".lstrip(".") in TENSOR_FUNCTIONS}
    assert len(found) > 30
    assert sorted(found - allowed - refused) == [], DECIDE
    assert sorted(allowed & refused) == []


def test_every_allowed_function_is_one_of_tensorflow() -> None:
    for name in TENSOR_FUNCTIONS:
        if not name.startswith("__operators__."):  # methods of tensors
            value = tf
            for part in name.split("."):
                value = getattr(value, part)
            assert callable(value), name


@pytest.mark.parametrize("module", KERAS_OPS)
def test_every_operation_of_keras_is_allowed_or_refused_by_name(module: str) -> None:
    named = vars(importlib.import_module(module)).items()
    base = keras3.layers.Layer if "applications" in module else Operation
    found = {
        name
        for name, value in named
        if inspect.isclass(value) and issubclass(value, base) and value.__module__ == module
    }
    refused = {*REFUSED["keras_operations"].get(module, "").split()}
    assert sorted(found - KERAS_OPS[module] - refused) == [], DECIDE
    assert sorted(KERAS_OPS[module] - found) == []
