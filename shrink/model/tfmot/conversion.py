"""Models of tensorflow-model-optimization as plain models of tf-keras.

Pruning and clustering wrappers are stripped by tfmot's own functions. Models that quantize in their
forward pass become the float models that they stand for, with the ranges that they were trained
with beside them: tfmot has no function for that, but its converter reads the same variables.
"""

from __future__ import annotations

import importlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import tensorflow as tf
import tf_keras as keras
from tensorflow_model_optimization.python.core.clustering.keras import cluster, cluster_wrapper
from tensorflow_model_optimization.python.core.quantization.keras import (
    quantize_annotate,
    quantize_aware_activation,
    quantize_layer,
    quantize_wrapper,
)
from tensorflow_model_optimization.python.core.sparsity.keras import prune, pruning_wrapper

from shrink.base.errors import ModelError
from shrink.base.keras_internals import layers_of
from shrink.base.types import Json, JsonObject
from shrink.contract.trained_range import TrainedRange
from shrink.graph.network import read_network
from shrink.graph.rebuild import connect
from shrink.model.keras3.convert import largest_difference, random_inputs, snake_case
from shrink.model.scan_files import CONFIG, WEIGHTS, open_weights
from shrink.model.tfmot.names import CLASSES, QUANTIZING, built_once

_OF_CLUSTERING = ("cluster_centroids_tf", "ori_weights_vars_tf", "pulling_indices_tf")


def write_loadable(path: Path, config: Json, folder: Path) -> Path:
    """Return a file of the same model that tf-keras can load.

    Args:
        path: a scanned `.keras` or `.h5` file.
        config: its configuration.
        folder: takes the new file.
    """
    target = folder / f"model{path.suffix.lower()}"
    if path.suffix.lower() == ".keras":
        _write_archive(path, config, target)
        return target
    shutil.copyfile(path, target)
    with h5py.File(target, "r+") as file:
        for group in file["model_weights"].values():
            names = [_text(name) for name in group.attrs.get("weight_names", ())]
            kept = [name for name in names if not any(part in name for part in _OF_CLUSTERING)]
            if len(kept) < len(names):
                group.attrs["weight_names"] = [name.encode() for name in kept]
    return target


def _write_archive(path: Path, config: Json, target: Path) -> None:
    weights = target.with_name("weights.h5")
    stored = open_weights(path)
    if stored is None:
        raise ValueError("it has no weights")
    with stored, weights.open("wb") as copy:
        shutil.copyfileobj(stored, copy)
    with h5py.File(weights, "r+") as file:
        # The group of each quantizing wrapper, and whether the wrapper rounds a kernel.
        layers = config["config"]["layers"] if isinstance(config, dict) else []
        groups: dict[str, bool] = {}
        counts: dict[str, int] = {}
        for layer in layers:
            kind = layer.get("class_name")
            number = counts[kind] = counts.get(kind, -1) + 1
            if kind in QUANTIZING and kind != "QuantizeLayer":
                group = snake_case(kind) + (f"_{number}" if number else "")
                rounds = layer["config"].get("quantize_config") or {}
                groups[group] = bool((rounds.get("config") or {}).get("weight_attrs"))
        for name, has_kernel in groups.items():
            if variables := file.get(f"layers/{name}/vars"):
                _renumber(variables, has_kernel)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.infolist():
            if member.filename not in (CONFIG, WEIGHTS):
                new.writestr(member, old.read(member))
        new.writestr(CONFIG, json.dumps(built_once(config)))
        new.write(weights, WEIGHTS)


def _renumber(variables: h5py.Group, has_kernel: bool) -> None:
    """Leave the variables that a loaded wrapper has, in their order.

    A `.keras` file numbers them. First come trainable ones: the layer's own, which stand with the
    layer too, the clustering's, and the kernel again. The number of the step, an integer, is the
    first of the others, among which the clustering's indices are the only other integers.
    """
    arrays = [np.asarray(variables[key]) for key in sorted(variables, key=int)]
    integers = [i for i, array in enumerate(arrays) if np.issubdtype(array.dtype, np.integer)]
    step = next((i for i in integers if not arrays[i].ndim), None)
    if step is None:
        return
    trainable = arrays[step - 1 : step] if has_kernel else []
    others = [array for i, array in enumerate(arrays) if i >= step and i not in integers]
    for key in list(variables):
        del variables[key]
    for number, array in enumerate((*trainable, arrays[step], *others)):
        variables[str(number)] = array


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


CLOSE = 1e-6
"""Of the largest output: how near a stripped model has to come to the one with its wrappers."""
_BITS = 8
_WORDS = {
    pruning_wrapper.PruneLowMagnitude: "prune_low_magnitude",
    cluster_wrapper.ClusterWeights: "cluster_weights",
    quantize_annotate.QuantizeAnnotate: "quantize_annotate",
    quantize_wrapper.QuantizeWrapper: "quantize_apply",
}


@dataclass(frozen=True)
class Imported:
    """A model without tfmot's layers.

    Attributes:
        model: of plain layers.
        ranges: those that tfmot trained, none where the model was not quantized.
        note: a sentence on what came in.
    """

    model: keras.Model
    ranges: tuple[TrainedRange, ...]
    note: str


def tfmot_classes() -> Mapping[str, type]:
    """Return the installed package's class for each name that a file may say."""
    return {name: getattr(importlib.import_module(at), name) for name, at in CLASSES.items()}


def load_wrapped(
    path: Path, config: Json, load: Callable[[Path, Mapping[str, type]], keras.Model]
) -> keras.Model:
    """Return the model of a scanned file with tfmot's layers in it, as it was saved.

    Args:
        path: a `.keras` or `.h5` file, or a SavedModel folder.
        config: the model's configuration; None for a folder.
        load: loads a file with the given classes.
    """
    if path.is_dir():
        return load(path, tfmot_classes())
    with tempfile.TemporaryDirectory(prefix="shrink-tfmot-") as folder:
        return load(write_loadable(path, config, Path(folder)), tfmot_classes())


def import_tfmot(wrapped: keras.Model, path: Path) -> Imported:
    """Return a model without tfmot's layers.

    Args:
        wrapped: functional or sequential.
        path: of its file, for messages.

    Raises:
        ModelError: without its wrappers it computes something else.
    """
    counts = _counts(wrapped)
    if not counts and not _quantize_layers(wrapped):
        return Imported(wrapped, (), "")
    arrays = random_inputs(wrapped)
    before = _outputs(wrapped, arrays)
    for layer in layers_of(wrapped):
        if isinstance(layer, pruning_wrapper.PruneLowMagnitude):
            for weight, mask, _ in layer.pruning_vars:
                weight.assign(weight * mask)
    model = wrapped
    if pruning_wrapper.PruneLowMagnitude in counts:
        model = prune.strip_pruning(model)
    if cluster_wrapper.ClusterWeights in counts:
        model = cluster.strip_clustering(model)
    if quantize_annotate.QuantizeAnnotate in counts:
        model = keras.models.clone_model(model, clone_function=_unannotated)
    ranges: tuple[TrainedRange, ...] = ()
    quantized = quantize_wrapper.QuantizeWrapper in counts or _quantize_layers(model)
    if quantized:
        model, ranges = _float_model(model)
    what = ", ".join(f"{_WORDS[kind]} around {count} layers" for kind, count in counts.items())
    note = f"imported from tensorflow-model-optimization: {what or 'quantized inputs'}"
    if quantized:
        return Imported(model, ranges, f"{note}; {len(ranges)} ranges of activations were trained")
    difference = largest_difference(_outputs(model, arrays), before)
    if difference > CLOSE:
        raise ModelError(
            f"without tfmot's wrappers, outputs differ by {difference:.1e} of the largest one",
            subject=path,
            hint="strip it with tfmot itself (strip_pruning, strip_clustering) and save it again",
        )
    return Imported(model, (), f"{note}; without them outputs agree to {difference:.1e}")


def _counts(model: keras.Model) -> dict[type, int]:
    """Return how many wrappers of each kind there are."""
    counts: dict[type, int] = {}
    for layer in layers_of(model):
        for kind in _WORDS:
            if isinstance(layer, kind):
                counts[kind] = counts.get(kind, 0) + 1
    return counts


def _quantize_layers(model: keras.Model) -> bool:
    return any(isinstance(layer, quantize_layer.QuantizeLayer) for layer in model.layers)


def _outputs(model: keras.Model, arrays: list[np.ndarray]) -> list[tf.Tensor]:
    return tf.nest.flatten(model(tf.nest.pack_sequence_as(model.input, arrays), training=False))


def _unannotated(layer: keras.layers.Layer) -> keras.layers.Layer:
    return layer.layer if isinstance(layer, quantize_annotate.QuantizeAnnotate) else layer


def _float_model(model: keras.Model) -> tuple[keras.Model, tuple[TrainedRange, ...]]:
    """Return the float model under a quantizing one, with the ranges of its activations."""
    network = read_network(model)
    passed = [c for c in network.calls if isinstance(c.layer, quantize_layer.QuantizeLayer)]
    made_by = {ref.index: _plain_name(call.layer) for call in network.calls for ref in call.outputs}
    made_by |= {ref.index: network.name(layer) for layer, ref in network.inputs}
    aliases = {call.outputs[0].index: call.inputs[0].index for call in passed}
    ranges = [
        TrainedRange(made_by[call.inputs[0].index], False, *_ends(call.layer.quantizer_vars))
        for call in passed
        if _is_eight_bits(call.layer.quantizer)
    ]
    skipped = {id(call) for call in passed}
    built = {
        id(layer): _plain(layer)
        for layer in network.layers()
        if not any(call.layer is layer for call in passed)
    }
    plain = connect(network, built, skipped, aliases)
    for layer in network.layers():
        if id(layer) in built:
            built[id(layer)].set_weights(_weights(layer, built[id(layer)]))
            ranges += _trained(layer)
    return plain, tuple(ranges)


def _plain_name(layer: keras.layers.Layer) -> str:
    wrapped = isinstance(layer, quantize_wrapper.QuantizeWrapper)
    return layer.layer.name if wrapped else layer.name


def _plain(layer: keras.layers.Layer) -> keras.layers.Layer:
    """Return a new layer of the kind that tfmot's wrapper is around, without weights."""
    if not isinstance(layer, quantize_wrapper.QuantizeWrapper):
        return type(layer).from_config(layer.get_config())
    inner = layer.layer
    config: JsonObject = inner.get_config()
    if "activation" in config:
        config["activation"] = _function(inner.activation)
    return type(inner).from_config(config)


def _function(activation: Callable[[tf.Tensor], tf.Tensor]) -> Json:
    while isinstance(activation, quantize_aware_activation.QuantizeAwareActivation):
        activation = activation.activation
    if isinstance(activation, quantize_aware_activation.NoOpActivation):
        return "linear"
    serialized: Json = keras.activations.serialize(activation)
    return serialized


def _weights(layer: keras.layers.Layer, plain: keras.layers.Layer) -> list[np.ndarray]:
    """Return a wrapped layer's weights as it computes with them, in the plain layer's order.

    A kernel is on the grid of the range that it was last trained with, which later quantization
    finds again: in a range of its own it would be rounded otherwise than in training.
    """
    if not isinstance(layer, quantize_wrapper.QuantizeWrapper):
        weights: list[np.ndarray] = layer.get_weights()
        return weights
    by_name = {_short(weight): weight for weight in layer.weights}
    for kernel, quantizer, variables in layer._weight_vars:
        by_name[_short(kernel)] = quantizer(kernel, False, weights=variables)
    return [np.asarray(by_name[_short(weight)]) for weight in plain.weights]


def _short(weight: tf.Variable) -> str:
    return str(weight.name).rpartition("/")[2].partition(":")[0]


def _trained(layer: keras.layers.Layer) -> list[TrainedRange]:
    """Return the ranges of what a wrapped layer gives, before its activation and after it."""
    if not isinstance(layer, quantize_wrapper.QuantizeWrapper):
        return []
    name, ranges = layer.layer.name, []
    for activation in layer._quantize_activations:
        if not _is_eight_bits(activation.quantizer):
            continue
        for attribute, before in (("_pre_activation_vars", True), ("_post_activation_vars", False)):
            if variables := getattr(activation, attribute, None):
                ranges.append(TrainedRange(name, before, *_ends(variables)))
    if layer._output_quantizers and _is_eight_bits(layer._output_quantizers[0]):
        ranges.append(TrainedRange(name, False, *_ends(layer._output_quantizer_vars)))
    return ranges


def _is_eight_bits(quantizer: object) -> bool:
    return quantizer is not None and getattr(quantizer, "num_bits", None) == _BITS


def _ends(variables: Mapping[str, tf.Variable]) -> tuple[float, float]:
    return float(variables["min_var"]), float(variables["max_var"])
