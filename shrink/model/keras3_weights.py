"""Weights of a Keras 3 file, given to the layers that stand for its own.

Keras 3 names groups by the snake-case class, counted within the model (`layers/dense_1/vars/0`),
and parts of a layer by its attributes (`layers/lstm/cell/vars/0`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import tf_keras as keras

from shrink.model.keras3_graph import CarriedModel
from shrink.model.keras3_layers import Carried, NotCarriedError

_STATELESS = frozenset({"seed_generator", "random_generator", "_dropout_layer", "_softmax"})
_OPTIMIZER = "optimizer"


def assign_weights(carried: CarriedModel, file: Any) -> None:
    """Assign the `model.weights.h5` of a `.keras` file.

    Args:
        carried: the rebuilt model.
        file: the open HDF5 file.

    Raises:
        NotCarriedError: a weight is missing, left over, or of another shape.
    """
    used: set[str] = set()
    _assign_model(carried, file, used)
    for name in _data_sets(file):
        parts = name.split("/")
        if name not in used and parts[0] != _OPTIMIZER and not _STATELESS & set(parts):
            raise NotCarriedError(name, "no layer takes this weight")


def assign_flat_weights(carried: CarriedModel, file: Any) -> None:
    """Assign the weights of an `.h5` file: a flat list for each layer, by the layer's name.

    Raises:
        NotCarriedError: a list that does not fit its layer.
    """
    root = file.get("model_weights", file)
    for layer in carried.model.layers:
        if not layer.weights:
            continue
        if layer.name not in root:
            raise NotCarriedError(layer.name, "the file has no weights for it")
        group = root[layer.name]
        values = [np.asarray(group[_text(name)]) for name in group.attrs["weight_names"]]
        values = [v for v in values if v.dtype != np.uint32]  # the states of random generators
        weights = [*layer.trainable_weights, *layer.non_trainable_weights]
        _assign(weights, values, layer.name)
        _finish(layer)


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _assign_model(carried: CarriedModel, group: Any, used: set[str]) -> None:
    names = _group_names(kind for kind, _ in carried.layers)
    for name, (_, item) in zip(names, carried.layers, strict=True):
        inner = group.get(f"layers/{name}")
        if isinstance(item, CarriedModel):
            if inner is not None:
                _assign_model(item, inner, used)
        elif item.layer is not None and (item.layer.weights or inner is not None):
            _assign_part(item.layer, inner, item.label, used, item)
            _finish(item.layer)


def _group_names(kinds: Iterable[str]) -> list[str]:
    counts: dict[str, int] = {}
    names = []
    for kind in kinds:
        name = snake_case(kind)
        counts[name] = counts.get(name, -1) + 1
        names.append(f"{name}_{counts[name]}" if counts[name] else name)
    return names


def snake_case(name: str) -> str:
    """Return a class name as Keras 3 writes it in weights files: `Conv2D` is `conv2d`."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def _assign_part(
    layer: Any, group: Any, label: str, used: set[str], carried: Carried | None = None
) -> None:
    """Assign a layer's own variables, then those of the layers inside."""
    own = [*layer._trainable_weights, *layer._non_trainable_weights]
    stored = {} if group is None or "vars" not in group else group["vars"]
    values = [_array(stored[key]) for key in sorted(stored, key=int)]
    if carried is not None and carried.reshape:
        values = [v.reshape(w.shape) for v, w in zip(values, own, strict=True)]
    _assign(own, values, label)
    used.update(stored[key].name.lstrip("/") for key in stored)
    for name in group or ():
        if name == "vars" or name in _STATELESS:
            continue
        if name == "cells":
            _assign_cells(layer.cells, group[name], label, used)
            continue
        inner = getattr(layer, name, None) or getattr(layer, f"_{name}", None)
        if isinstance(inner, keras.layers.Layer):
            _assign_part(inner, group[name], f"{label} ({name})", used)


def _assign_cells(cells: list[Any], group: Any, label: str, used: set[str]) -> None:
    names = _group_names(type(cell).__name__ for cell in cells)
    for name, cell in zip(names, cells, strict=True):
        _assign_part(cell, group[name], f"{label} ({name})", used)


def _assign(weights: list[Any], values: list[Any], label: str) -> None:
    if len(weights) != len(values):
        raise NotCarriedError(label, f"it has {len(weights)} weights, the file {len(values)}")
    for weight, value in zip(weights, values, strict=True):
        if tuple(weight.shape) != value.shape:
            raise NotCarriedError(
                label, f"its {weight.name} is {tuple(weight.shape)}, in the file {value.shape}"
            )
        weight.assign(value.astype(weight.dtype.as_numpy_dtype))


def _array(data: Any) -> Any:
    value = np.asarray(data)
    if data.attrs.get("dtype") == "bfloat16":
        # The upper half of a float32, stored as its bits.
        return (value.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return value


def _finish(layer: Any) -> None:
    if isinstance(layer, keras.layers.Normalization):
        layer.finalize_state()


def _data_sets(file: Any) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return names
