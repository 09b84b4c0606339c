"""Models from files and from functions, as tf-keras models."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tf_keras as keras

from shrink.errors import ModelError, ShrinkError
from shrink.graph.scale import scaled
from shrink.model.keras3 import import_keras3
from shrink.model.scan import check_model_file

_LOAD_HINTS = {
    "file": "save it again with tf-keras 2 (model.save('model.keras'))",
    "folder": "save the Keras model itself (model.save('model.keras'), not model.export), or give "
    "the function that builds it (file.py:build); `shrink quantize` takes it as it is",
}


def load_source(source: Mapping[str, Any]) -> keras.Model:
    """Return the model that a step's input names.

    Args:
        source: `kind`, `path`, `function` and `arguments`, as a job file has them. The arguments
            are given to a function that takes them; else the model is scaled by them
            (`shrink.graph.scale`).

    Raises:
        ModelError: unreadable, refused, or not a tf-keras model.
        RecipeError: a scale above 1 of a model that has no builder for it.
    """
    path, arguments = Path(source["path"]), dict(source.get("arguments") or {})
    if source["kind"] == "builder":
        taken = _arguments_of(path, source["function"])
        own = {n: v for n, v in arguments.items() if taken is None or n in taken}
        model = build_model(path, source["function"], own)
        arguments = {name: value for name, value in arguments.items() if name not in own}
    else:
        model = load_model(path)
    return scaled(model, arguments) if arguments else model


def load_model(path: Path) -> keras.Model:
    """Return the model saved in a `.keras` or `.h5` file, or in a SavedModel folder.

    A file of Keras 3 is rebuilt from tf-keras' layers.

    Raises:
        ModelError: it cannot be read, or holds what shrink refuses to load.
    """
    content = check_model_file(path)
    if content.from_keras3:
        return import_keras3(path, content.config)
    try:
        model = keras.models.load_model(path, compile=False)
    except Exception as error:  # Keras raises whatever its layers raise
        raise ModelError(
            f"Keras cannot load this model: {_first_line(error)}",
            subject=path,
            hint=_LOAD_HINTS["folder" if path.is_dir() else "file"],
        ) from error
    if path.is_dir() and not isinstance(model, keras.Model):
        raise ModelError(
            "this SavedModel holds a graph without Keras' layers",
            subject=path,
            hint=_LOAD_HINTS["folder"],
        )
    return _checked(model, path)


def build_model(path: Path, function: str, arguments: Mapping[str, float]) -> keras.Model:
    """Return the model that `function` of the Python file `path` builds.

    Args:
        path: a file that the recipe or the command names; its code runs here.
        function: the function's name.
        arguments: keyword arguments such as `width`.
    """
    build = _function(path, function)
    try:
        model = build(**arguments)
    except ShrinkError:
        raise
    except Exception as error:
        raise ModelError(
            f"{function}() raised {type(error).__name__}: {_first_line(error)}", subject=path
        ) from error
    return _checked(model, path)


def _arguments_of(path: Path, function: str) -> set[str] | None:
    """Return the names of a builder's arguments, None where it takes any."""
    taken = inspect.signature(_function(path, function)).parameters
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return None
    return set(taken)


def _function(path: Path, name: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(f"shrink_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ModelError("not a Python file", subject=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(
            f"this file cannot be imported: {type(error).__name__}: {_first_line(error)}",
            subject=path,
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        public = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ModelError(
            f"it has no function {name!r}; there are {', '.join(public) or 'none'}", subject=path
        )
    return function


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
            hint="build it with keras.Model(inputs, outputs) or keras.Sequential",
        )
    return model


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
