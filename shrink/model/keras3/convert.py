"""Models saved by Keras 3, rebuilt from tf-keras' layers, and checked.

A file of Keras 3 is never loaded by Keras itself: its configuration is read as data, every layer is
built anew from the layer of tf-keras that computes the same, and the weights are assigned to it.

Keras 3 names groups by the snake-case class, counted within the model (`layers/dense_1/vars/0`),
and parts of a layer by its attributes (`layers/lstm/cell/vars/0`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import h5py
import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError, first_line
from shrink.base.keras_internals import own_state, own_weights, parts_of
from shrink.base.types import Array, Json, JsonObject, Tensors
from shrink.model.keras3.dequantization import float_weights
from shrink.model.keras3.graph import ConvertedModel, build_model
from shrink.model.keras3.layers import (
    AUGMENTATION,
    HALF,
    QUANTIZED_POLICIES,
    ConvertedLayer,
    UnsupportedLayerError,
)
from shrink.model.scan_files import open_weights

if TYPE_CHECKING:  # its import takes two thirds of a second, for files of Keras 3 alone
    import keras as keras3

_HINT = (
    "replace that layer in the Keras 3 model, or give a function that builds the model with "
    "tf_keras (file.py:build)"
)


def import_keras3(path: Path, config: JsonObject) -> keras.Model:
    """Return the tf-keras model that computes what a model of Keras 3 computes.

    Args:
        path: a scanned `.keras` or `.h5` file that Keras 3 saved, with any backend.
        config: its configuration, as `check_model_file` returns it.

    Raises:
        ModelError: a layer has no counterpart (it is named, with the reason), or the weights do
            not fit the layers.
    """
    try:
        converted = build_model(config)
        with _weights_file(path) as file:
            if path.suffix == ".keras":
                assign_weights(converted, file)
            else:
                assign_flat_weights(converted, file)
    except UnsupportedLayerError as error:
        raise ModelError(
            f"Keras 3 saved it, and tf-keras cannot take over {error.layer}: {error.reason}",
            subject=path,
            hint=error.hint or _HINT,
        ) from error
    except ModelError:
        raise
    except Exception as error:  # tf-keras raises whatever its layers raise
        raise ModelError(
            f"Keras 3 saved it, and it cannot be rebuilt with tf-keras: "
            f"{type(error).__name__}: {first_line(error)}",
            subject=path,
            hint=_HINT,
        ) from error
    return converted.model


@contextlib.contextmanager
def _weights_file(path: Path) -> Iterator[h5py.File]:
    source = open_weights(path) if path.suffix == ".keras" else None
    try:
        with h5py.File(source if source is not None else path, "r") as file:
            yield file
    finally:
        if source is not None:
            source.close()


_STATELESS = frozenset({"seed_generator", "random_generator", "_dropout_layer", "_softmax"})
_OPTIMIZER = "optimizer"


def assign_weights(converted: ConvertedModel, file: h5py.File) -> None:
    """Assign the `model.weights.h5` of a `.keras` file.

    Args:
        converted: the rebuilt model.
        file: the open HDF5 file.

    Raises:
        UnsupportedLayerError: a weight is missing, left over, or of another shape.
    """
    used: set[str] = set()
    _assign_model(converted, file, used)
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    for name in names:
        parts = name.split("/")
        if name not in used and parts[0] != _OPTIMIZER and not _STATELESS & set(parts):
            raise UnsupportedLayerError(name, "no layer takes this weight")


def assign_flat_weights(converted: ConvertedModel, file: h5py.File) -> None:
    """Assign the weights of an `.h5` file: a flat list for each layer, by the layer's name.

    Raises:
        UnsupportedLayerError: a list that does not fit its layer.
    """
    root = file.get("model_weights", file)
    for layer in converted.model.layers:
        if not layer.weights:
            continue
        if layer.name not in root:
            raise UnsupportedLayerError(layer.name, "the file has no weights for it")
        group = root[layer.name]
        values = [np.asarray(group[name]) for name in group.attrs["weight_names"]]
        values = [v for v in values if v.dtype != np.uint32]  # the states of random generators
        weights = [*layer.trainable_weights, *layer.non_trainable_weights]
        _assign(weights, values, layer.name)
        _finish(layer)


def _assign_model(converted: ConvertedModel, group: h5py.Group, used: set[str]) -> None:
    names = _group_names(kind for kind, _ in converted.layers)
    for name, (_, item) in zip(names, converted.layers, strict=True):
        inner = group.get(f"layers/{name}")
        if isinstance(item, ConvertedModel):
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
    layer: keras.layers.Layer,
    group: h5py.Group | None,
    label: str,
    used: set[str],
    converted: ConvertedLayer | None = None,
) -> None:
    """Assign a layer's own variables, then those of the layers inside."""
    own = [*own_weights(layer), *own_state(layer)]
    groups: Mapping[str, h5py.Group] = {} if group is None else group
    stored = groups.get("vars", {})
    values = float_weights(layer, [_array(stored[key]) for key in sorted(stored, key=int)])
    if converted is not None and converted.reshape:
        values = [v.reshape(w.shape) for v, w in zip(values, own, strict=True)]
    _assign(own, values, label)
    used.update(stored[key].name.lstrip("/") for key in stored)
    for name in groups:
        if name == "vars" or name in _STATELESS:
            continue
        if name == "cells":
            _assign_cells(layer.cells, groups[name], label, used)
            continue
        inner = getattr(layer, name, None) or getattr(layer, f"_{name}", None)
        if isinstance(inner, keras.layers.Layer):
            _assign_part(inner, groups[name], f"{label} ({name})", used)


def _assign_cells(
    cells: list[keras.layers.Layer], group: h5py.Group, label: str, used: set[str]
) -> None:
    names = _group_names(type(cell).__name__ for cell in cells)
    for name, cell in zip(names, cells, strict=True):
        _assign_part(cell, group[name], f"{label} ({name})", used)


def _assign(weights: list[tf.Variable], values: Sequence[Array], label: str) -> None:
    if len(weights) != len(values):
        raise UnsupportedLayerError(label, f"it has {len(weights)} weights, the file {len(values)}")
    for weight, value in zip(weights, values, strict=True):
        if tuple(weight.shape) != value.shape:
            raise UnsupportedLayerError(
                label, f"its {weight.name} is {tuple(weight.shape)}, in the file {value.shape}"
            )
        weight.assign(value.astype(weight.dtype.as_numpy_dtype))


def _array(data: h5py.Dataset) -> Array:
    value: Array = np.asarray(data)
    if data.attrs.get("dtype") == "bfloat16":
        # The upper half of a float32, stored as its bits.
        return (value.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return value


def _finish(layer: keras.layers.Layer) -> None:
    if isinstance(layer, keras.layers.Normalization):
        layer.finalize_state()


def changes_in_words(model: keras.Model, config: Json) -> str:
    """Return what an import changed beside the library, or "".

    Args:
        model: imported.
        config: that of the file.
    """
    policies, dropped = set[str](), list[str]()
    kept = {type(layer).__name__ for layer in parts_of(model)}
    for item in _objects(config):
        settings = item.get("config")
        if not isinstance(settings, Mapping):
            continue
        if item["class_name"] in QUANTIZED_POLICIES:
            policies.add(str(settings.get("mode")).partition("/")[0])
        if item["class_name"] in AUGMENTATION and item["class_name"] not in kept:
            dropped.append(str(settings.get("name")))
        if settings.get("name") in HALF:
            policies.add(str(settings["name"]))
    words = [f"weights of {name} became float32" for name in sorted(policies)]
    words += [f"augmentation is left out: {', '.join(dropped)}"] if dropped else []
    return "; ".join(words)


def _objects(value: Json) -> Iterator[Mapping[str, Json]]:
    """Yield the serialized objects of a configuration."""
    if isinstance(value, Mapping):
        if isinstance(value.get("class_name"), str):
            yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _objects(item)


CLOSE = 1e-5
_TOO_FAR = 1e-3
"""Rounding can grow to this in a deep network; a layer that is not what it was is farther off."""
_TOO_COARSE = 0.1
"""The same of a network that Keras computes in 16 bits."""
_OPEN_LENGTH = 8


def compare_import(model: keras.Model, path: Path) -> str:
    """Return a sentence that says how near an import comes to Keras 3, on random inputs.

    Args:
        model: imported.
        path: the scanned file that Keras 3 saved; Keras 3 loads it here, in its safe mode.

    Raises:
        ModelError: an output differs by more than a thousandth of its largest value.
    """
    import keras as keras3

    try:
        original = keras3.saving.load_model(path, compile=False)
    except Exception as error:  # whatever its layers raise
        return _not_compared(error)
    try:
        return compare_outputs(model, original)
    except ModelError as error:
        error.subject = str(path)
        raise


def _not_compared(error: Exception) -> str:
    return f"imported from Keras 3, which cannot run the file here: {first_line(error, 200)}"


def compare_outputs(model: keras.Model, original: keras3.Model) -> str:
    """Return a sentence that says how near an import comes to the model of Keras 3.

    Raises:
        ModelError: an output differs by more than a thousandth of its largest value.
    """
    import keras as keras3

    arrays = random_inputs(model)
    coarse = _make_comparable(original)
    try:
        theirs = keras3.tree.flatten(original(_fed(original, arrays), training=False))
    except Exception as error:  # whatever its layers raise
        return _not_compared(error)
    ours = tf.nest.flatten(model(tf.nest.pack_sequence_as(model.input, arrays), training=False))
    difference = largest_difference(ours, theirs)
    if difference > (_TOO_COARSE if coarse else _TOO_FAR):
        raise ModelError(
            f"Keras 3 gives outputs that differ by {difference:.1e} of the largest one",
            hint="report it with the model; nothing was computed with it",
        )
    exact = "" if difference <= CLOSE else ", more than the 1e-5 that rounding mostly takes"
    if coarse:
        exact = f", as Keras computes in {coarse}"
    return f"imported from Keras 3: outputs agree to {difference:.1e} of the largest one{exact}"


def _make_comparable(original: keras3.Model) -> str:
    """Let Keras quantize no activations; return the 16-bit type in which it computes, or ""."""
    import keras as keras3

    coarse = set()
    for layer in parts_of(original):
        if getattr(layer, "inputs_quantizer", None) is not None:
            layer.inputs_quantizer = None
        if getattr(layer, "quantization_mode", None) == "float8":
            layer._dtype_policy = keras3.DTypePolicy(layer.dtype_policy.compute_dtype)
        if (dtype := layer.dtype_policy.compute_dtype) in HALF:
            coarse.add(dtype)
    return " and ".join(sorted(coarse))


_LOOKING_UP = (keras.layers.Embedding, keras.layers.CategoryEncoding)


def random_inputs(model: keras.Model) -> list[Array]:
    """Return two random examples for each input; open dimensions are 8 long.

    Integers are indices, of which 0 and 1 are always there. So are all numbers of a model that
    looks something up.
    """
    random = np.random.default_rng(0)
    looked_up = any(isinstance(layer, _LOOKING_UP) for layer in parts_of(model))
    arrays = []
    for tensor in model.inputs:
        shape = [2, *(length or _OPEN_LENGTH for length in tensor.shape[1:])]
        dtype = tensor.dtype.as_numpy_dtype
        integer = looked_up or np.issubdtype(dtype, np.integer)
        values = random.choice([0, 1], shape) if integer else random.normal(size=shape)
        arrays.append(values.astype(dtype))
    return arrays


def largest_difference(ours: Sequence[tf.Tensor], theirs: Sequence[tf.Tensor]) -> float:
    """Return the largest difference of two lists of outputs, each relative to its own largest."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        first, second = np.asarray(tf.cast(a, tf.float32)), np.asarray(tf.cast(b, tf.float32))
        if first.shape != second.shape:
            return float("inf")
        scale = max(float(np.abs(second).max(initial=0)), 1e-12)
        worst = max(worst, float(np.abs(first - second).max(initial=0)) / scale)
    return worst


def _fed(model: keras3.Model, arrays: list[Array]) -> Tensors:
    structure = getattr(model, "_inputs_struct", None)
    if structure is None or len(arrays) == 1:
        return arrays[0] if len(arrays) == 1 else arrays
    import keras as keras3

    return keras3.tree.pack_sequence_as(structure, arrays)
