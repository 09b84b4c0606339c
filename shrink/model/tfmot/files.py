"""Files of tfmot's quantizing models that tf-keras can load, made from those that it cannot.

tfmot 0.8.1 does not load what it saved in two cases: a quantized model in a `.keras` file, whose
layers are built twice, and a model of cluster-preserving training, which has three more variables
for each kernel than its configuration says: the centroids, the indices, and the weights before the
clustering. None of the three is needed: the kernel itself is stored as it was clustered last.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import h5py
import numpy as np

from shrink.base.types import Json
from shrink.model.keras3.convert import snake_case
from shrink.model.scan_files import CONFIG, WEIGHTS, open_weights
from shrink.model.tfmot.names import QUANTIZING, built_once

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
