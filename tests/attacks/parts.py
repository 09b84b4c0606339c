"""What hostile model files are built from: configurations, archives, HDF5 files, code in hiding."""

from __future__ import annotations

import base64
import io
import json
import marshal
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

CANARY = "canary"
Attack = Callable[[Path], Path]
Json = dict[str, Any]


def sequential(*layers: Json, **more: Any) -> Json:
    """Return the configuration of a sequential model."""
    entry = layer("InputLayer", {"batch_input_shape": [None, 4], "name": "in"})
    return {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "net", "layers": [entry, *layers]},
        "registered_name": None,
        **more,
    }


def layer(
    name: str, config: Json, module: str | None = "keras.layers", registered: Any = None
) -> Json:
    """Return a serialized layer."""
    return {
        "module": module,
        "class_name": name,
        "config": {"name": name.lower(), **config},
        "registered_name": registered,
    }


def dense(**config: Any) -> Json:
    """Return a dense layer with unusual settings."""
    return layer("Dense", {"name": "dense", "units": 2, **config})


def called_by(*nodes: Json | list[Any]) -> Json:
    """Return a functional model of a dense layer with these nodes."""
    entry = layer("InputLayer", {"batch_input_shape": [None, 4], "name": "in"})
    called = {**dense(), "name": "dense", "inbound_nodes": [[node] for node in nodes]}
    layers = [{**entry, "name": "in", "inbound_nodes": []}, called]
    ends = {"input_layers": [["in", 0, 0]], "output_layers": [["dense", 0, 0]]}
    return {
        "module": "keras",
        "class_name": "Functional",
        "config": {"name": "net", "layers": layers, **ends},
        "registered_name": "Functional",
    }


def code(folder: Path) -> Json:
    """Return a marshalled function that writes the canary, as Keras stores a lambda."""
    source = f"lambda x: open({str(folder / CANARY)!r}, 'w').write('x') and x"
    packed = base64.b64encode(marshal.dumps(eval(source).__code__)).decode()
    value = {"code": packed, "defaults": None, "closure": None}
    return {"class_name": "__lambda__", "config": {"value": value}}


def lambda_layer(folder: Path) -> Json:
    """Return a Lambda layer that writes the canary."""
    return layer("Lambda", {"function": code(folder)})


def weights(change: Callable[[Any], None] | None = None) -> bytes:
    """Return an HDF5 file with a dense layer's weights, changed."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        group = file.create_group("layers/dense/vars")
        group["0"] = np.zeros((4, 2), np.float32)
        group["1"] = np.zeros(2, np.float32)
        if change is not None:
            change(file)
    return buffer.getvalue()


def archive(
    folder: Path,
    config: Any,
    change: Callable[[zipfile.ZipFile], None] | None = None,
    hdf5: bytes | None = None,
    version: str = "2.21.0",
) -> Path:
    """Write a `.keras` file, with further members."""
    path = folder / "model.keras"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata.json", json.dumps({"keras_version": version}))
        file.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        file.writestr("model.weights.h5", weights() if hdf5 is None else hdf5)
        if change is not None:
            change(file)
    return path


def h5(folder: Path, config: Any, change: Callable[[Any], None] | None = None) -> Path:
    """Write an `.h5` file of a whole model."""
    path = folder / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.21.0"
        file.attrs["model_config"] = json.dumps(config)
        file["model_weights/dense/dense/kernel:0"] = np.zeros((4, 2), np.float32)
        if change is not None:
            change(file)
    return path


def in_config(make: Callable[[Path], Json], version: str = "2.21.0") -> Attack:
    """Return an attack by a layer in a `.keras` file."""
    return lambda folder: archive(folder, sequential(make(folder)), version=version)


def in_h5(make: Callable[[Path], Json]) -> Attack:
    """Return an attack by a layer in an `.h5` file."""
    return lambda folder: h5(folder, sequential(make(folder)))


def with_member(name: str, data: bytes = b"x", mode: int = stat.S_IFREG) -> Attack:
    """Return an attack by a further member of the archive."""

    def make(folder: Path) -> Path:
        def add(file: zipfile.ZipFile) -> None:
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            file.writestr(member, data)

        return archive(folder, sequential(dense()), add)

    return make


def with_weights(change: Callable[[Any], None]) -> Attack:
    """Return an attack by the weights within a `.keras` file."""
    return lambda folder: archive(folder, sequential(dense()), hdf5=weights(change))


def function(module: str, name: str) -> Json:
    """Return a serialized function of a module."""
    return {
        "module": module,
        "class_name": "function",
        "config": name,
        "registered_name": name,
    }


def legacy_lambda(folder: Path) -> Json:
    """Return a Lambda as Keras 2 stores it: byte code in a list."""
    packed = code(folder)["config"]["value"]["code"]
    config = {"function": [packed, None, None], "function_type": "lambda"}
    return {"class_name": "Lambda", "config": {"name": "l", **config}}


def op_lambda(name: str, class_name: str = "TFOpLambda") -> Callable[[Path], Json]:
    """Return a layer that calls a TensorFlow function."""
    module = "tf_keras.src.layers.core.tf_op_layer"
    return lambda _: layer(class_name, {"function": name}, module, class_name)


def foreign(module: str, name: str, config: Json | None = None) -> Callable[[Path], Json]:
    """Return an object of another module."""
    return lambda _: layer(name, config or {}, module)


def nested(make: Callable[[Path], Json]) -> Callable[[Path], Json]:
    """Return a model within the model."""
    return lambda folder: sequential(make(folder))


def wrapped(wrapper: str, make: Callable[[Path], Json], key: str = "layer") -> Callable[..., Json]:
    """Return a layer within a wrapper."""
    return lambda folder: layer(wrapper, {key: make(folder)})
