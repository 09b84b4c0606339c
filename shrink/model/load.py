"""Models from files and from functions, as tf-keras models."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tf_keras as keras

from shrink.base.errors import ModelError, ShrinkError
from shrink.contract.model_source import NO_TRUST, ModelSource, Trust
from shrink.graph.scale import scaled
from shrink.model.keras3.convert import import_keras3
from shrink.model.limits import bounded_loading
from shrink.model.opaque import graph_model, subclassed_model
from shrink.model.reference import holds_layers
from shrink.model.scan import check_model_file
from shrink.model.user_modules import custom_objects, function_of

_LOAD_HINTS = {
    "file": "save it again with tf-keras 2 (model.save('model.keras'))",
    "folder": "save the Keras model itself (model.save('model.keras'), not model.export), or give "
    "the function that builds it (file.py:build); `shrink quantize` takes it as it is",
}


def load_source(source: ModelSource, as_graph: bool = False) -> keras.Model:
    """Return the model that a step's input names.

    Args:
        source: the model. Its arguments are given to a function that takes them; else the model
            is scaled by them (`shrink.graph.scale`).
        as_graph: whether a model of which only a graph is known will do: it is one layer then.

    Raises:
        ModelError: unreadable, refused, or not a tf-keras model.
        RecipeError: a scale above 1 of a model that has no builder for it.
    """
    path, arguments = source.path, dict(source.arguments)
    if source.function is not None:
        taken = _arguments_of(path, source.function)
        own = {n: v for n, v in arguments.items() if taken is None or n in taken}
        model = build_model(path, source.function, own, as_graph)
        arguments = {name: value for name, value in arguments.items() if name not in own}
    elif as_graph and path.is_dir() and not holds_layers(path):
        check_model_file(path, source.trust)
        with bounded_loading(path):
            model = graph_model(path)
    else:
        model = load_model(path, source.trust)
    return scaled(model, arguments) if arguments else model


def load_model(path: Path, trust: Trust = NO_TRUST) -> keras.Model:
    """Return the model saved in a `.keras` or `.h5` file, or in a SavedModel folder.

    A file of Keras 3 is rebuilt from tf-keras' layers.

    Args:
        path: of the model.
        trust: custom objects to load it with, or that it is trusted whatever it holds.

    Raises:
        ModelError: it cannot be read, or holds what shrink refuses to load.
    """
    content = check_model_file(path, trust)
    if path.is_dir() and not holds_layers(path):
        raise ModelError(
            "this SavedModel holds a graph without Keras' layers",
            subject=path,
            hint=_LOAD_HINTS["folder"],
        )
    objects = custom_objects(trust.custom_objects)
    if content.from_keras3:
        with keras.saving.custom_object_scope(objects), bounded_loading(path):
            return import_keras3(path, content.config)
    unsafe = {"safe_mode": False} if trust.everything and not path.is_dir() else {}
    try:
        with bounded_loading(path):
            model = keras.models.load_model(path, custom_objects=objects, compile=False, **unsafe)
    except Exception as error:  # Keras raises whatever its layers raise
        raise ModelError(
            f"Keras cannot load this model: {_first_line(error)}",
            subject=path,
            hint=_LOAD_HINTS["folder" if path.is_dir() else "file"],
        ) from error
    return _checked(model, path)


def import_note(model: keras.Model, source: ModelSource) -> str:
    """Return how near a model of Keras 3 comes to what it was; empty for any other.

    Args:
        model: as `load_source` returned it, unscaled.
        source: what it was loaded from.

    Raises:
        ModelError: it computes something else than Keras 3 does.
    """
    path = source.path
    keras_file = source.kind in ("keras", "h5")
    if not (keras_file and check_model_file(path, source.trust).from_keras3):
        return ""
    from shrink.model.keras3.weights import compare_import

    with bounded_loading(path):
        return compare_import(model, path)


def build_model(
    path: Path, function: str, arguments: Mapping[str, float], as_graph: bool = False
) -> keras.Model:
    """Return the model that `function` of the Python file `path` builds.

    Args:
        path: a file that the recipe or the command names; its code runs here.
        function: the function's name.
        arguments: keyword arguments such as `width`.
        as_graph: whether a subclassed model will do; it is traced.
    """
    build = function_of(path, function)
    try:
        model = build(**arguments)
    except ShrinkError:
        raise
    except Exception as error:
        raise ModelError(
            f"{function}() raised {type(error).__name__}: {_first_line(error)}", subject=path
        ) from error
    subclassed = isinstance(model, keras.Model) and not model._is_graph_network
    if as_graph and subclassed:
        return subclassed_model(model, path)
    return _checked(model, path)


def _arguments_of(path: Path, function: str) -> set[str] | None:
    """Return the names of a builder's arguments, None where it takes any."""
    taken = inspect.signature(function_of(path, function)).parameters
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return None
    return set(taken)


def _checked(model: Any, path: Path) -> keras.Model:
    if not isinstance(model, keras.Model):
        keras3 = type(model).__module__.startswith("keras.")
        hint = "build it with `import tf_keras as keras`" if keras3 else None
        raise ModelError(
            f"this is a {type(model).__module__}.{type(model).__name__}, not a tf-keras model",
            subject=path,
            hint=hint,
        )
    if not getattr(model, "_is_graph_network", False):
        raise ModelError(
            "a subclassed model has no graph of layers to work on",
            subject=path,
            hint="build it with keras.Model(inputs, outputs) or keras.Sequential; as it is it can "
            "be the teacher of a student that has one, and `shrink export --format savedmodel` "
            "makes a graph of it that `shrink quantize` takes",
        )
    return model


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
