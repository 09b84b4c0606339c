"""What a model file holds, looked at before anything in it is loaded.

A Keras file is a program: a Lambda layer carries byte code, a custom object names code to import.
Only layers of Keras itself pass.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import tf_keras as keras

from shrink.errors import ModelError

_CONFIG_CAP_BYTES = 64 << 20
_DEPTH_CAP = 200
_TENSOR_FUNCTIONS = ("__operators__.", "math.", "nn.", "linalg.matmul", "compat.v1.nn.", "split")
_TENSOR_FUNCTIONS_EXACT = frozenset(
    {"concat", "reshape", "transpose", "stack", "expand_dims", "squeeze", "cast", "identity", "pad",
     "tile", "clip_by_value", "reduce_mean", "image.resize", "gather", "slice", "shape"}
)  # fmt: skip
_OP_LAYERS = frozenset({"TFOpLambda", "SlicingOpLambda"})
_MODELS = frozenset({"Functional", "Sequential", "Model"})


def check_model_file(path: Path) -> None:
    """Raise `ModelError` unless the file is a Keras 2 model of Keras' own layers.

    Args:
        path: a `.keras` or `.h5` file; a SavedModel folder is not walked here.
    """
    if path.is_dir():
        return
    config = _keras_config(path) if path.suffix == ".keras" else _h5_config(path)
    for layer, where in _objects(config, "model", 0):
        _check_object(layer, where, path)


def _keras_config(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            metadata = json.loads(_member(archive, "metadata.json"))
            config = json.loads(_member(archive, "config.json"))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, RuntimeError) as error:
        raise _unreadable("a .keras file", error, path) from error
    version = str(metadata.get("keras_version", "")) if isinstance(metadata, dict) else ""
    if version.startswith("3"):
        raise ModelError(
            f"it was saved by Keras {version}, and shrink trains with tf-keras 2",
            subject=path,
            hint="save it from tf_keras, or give the function that builds it (file.py:build)",
        )
    return config


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > _CONFIG_CAP_BYTES:
        raise ValueError(f"{name} is larger than {_CONFIG_CAP_BYTES >> 20} MiB")
    return archive.read(name)


def _h5_config(path: Path) -> Any:
    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get("model_config")
            if text is None:
                raise ModelError(
                    "it holds weights without the model around them",
                    subject=path,
                    hint="save the whole model (model.save), not save_weights",
                )
            return json.loads(text if isinstance(text, str) else text.decode())
    except (OSError, ValueError, AttributeError) as error:
        raise _unreadable("an HDF5 model", error, path) from error


_PLAIN_WORDS = {
    "file is not a zip file": "it is no zip archive, or cut short",
    "file signature not found": "it has no HDF5 signature",
    "truncated file": "it is cut short",
    "no item named": "a part of it is missing",
}
"""Plain words for what zipfile and h5py say."""


def _unreadable(kind: str, error: Exception, path: Path) -> ModelError:
    text = str(error).strip("'\"")
    plain = next((words for part, words in _PLAIN_WORDS.items() if part in text.lower()), text)
    return ModelError(
        f"not {kind} that can be read: {plain}",
        subject=path,
        hint="copy the file again, or save the model again with model.save",
    )


def _objects(value: Any, where: str, depth: int) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every serialized object of a configuration with the name of what is around it."""
    if depth > _DEPTH_CAP:
        raise ModelError("its configuration is nested too deep", subject=where)
    if isinstance(value, dict):
        if isinstance(value.get("class_name"), str):
            config = value.get("config")
            named = config.get("name") if isinstance(config, dict) else None
            where = str(named or where)
            yield value, where
        for item in value.values():
            yield from _objects(item, where, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _objects(item, where, depth + 1)


def _check_object(value: dict[str, Any], where: str, path: Path) -> None:
    name, module = value["class_name"], value.get("module")
    if name in _OP_LAYERS:
        _check_tensor_function(value, where, path)
    elif name == "Lambda" or name == "__lambda__":
        raise _refused("a Lambda layer carries code", where, path)
    elif name == "function":
        _check_module(value, where, path)
    elif module is None and not _known(name):
        raise _refused(f"{name} is not a layer or object of Keras", where, path)
    elif module is not None:
        _check_module(value, where, path)


def _check_module(value: dict[str, Any], where: str, path: Path) -> None:
    module = str(value.get("module") or "keras")
    if module.split(".")[0] not in ("keras", "tf_keras", "builtins") or "\0" in module:
        raise _refused(f"{value['class_name']} comes from the module {module!r}", where, path)
    if module == "builtins" and value["class_name"] not in ("function", "slice"):
        raise _refused(f"{value['class_name']} is a Python builtin", where, path)
    registered = value.get("registered_name")
    if isinstance(registered, str) and ">" in registered:
        raise _refused(f"{registered} is a custom object", where, path)


def _check_tensor_function(value: dict[str, Any], where: str, path: Path) -> None:
    config = value.get("config")
    function = str(config.get("function", "")) if isinstance(config, dict) else ""
    if value["class_name"] == "SlicingOpLambda" and not function:
        return
    if function in _TENSOR_FUNCTIONS_EXACT or function.startswith(_TENSOR_FUNCTIONS):
        return
    raise _refused(f"it calls the TensorFlow function {function!r}", where, path)


def _known(name: str) -> bool:
    rooms = (keras.layers, keras.initializers, keras.regularizers, keras.constraints)
    more = (keras.activations, keras.optimizers, keras.losses, keras.metrics, keras.mixed_precision)
    special = _MODELS | {"Policy", "TensorShape", "CategoricalCrossentropy", "InputSpec"}
    return name in special or any(hasattr(room, name) for room in (*rooms, *more))


def _refused(reason: str, where: str, path: Path) -> ModelError:
    return ModelError(
        f"refused: {reason} (at {where!r})",
        subject=path,
        hint="rebuild the model from Keras' own layers, or give the function that builds it",
    )
