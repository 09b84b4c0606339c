"""What a model file holds, looked at before anything in it is loaded, without TensorFlow.

A Keras file is a program: a Lambda layer carries byte code, a custom object names code to import,
a lookup layer reads files. Only what Keras itself provides, listed in `allowlist.py`, passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shrink.base.errors import ModelError
from shrink.base.refusal import refused, unreadable
from shrink.model.scan_archive import check_archive, open_weights
from shrink.model.scan_config import DeclaredSize, check_config
from shrink.model.scan_graph import check_saved_model
from shrink.model.scan_hdf5 import check_hdf5, read_attribute
from shrink.model.trust import NO_TRUST, Trust

SCANNED = frozenset({"keras", "h5", "savedmodel"})
"""Kinds of model files that `check_model_file` looks at."""


@dataclass(frozen=True)
class ModelContent:
    """A scanned model file.

    Attributes:
        keras_version: of the Keras that saved it, empty where the file does not say.
        config: the model's parsed configuration; None for a SavedModel.
    """

    keras_version: str
    config: Any

    @property
    def from_keras3(self) -> bool:
        """Whether Keras 3 saved it."""
        return self.keras_version.startswith("3")


def check_model_file(path: Path, trust: Trust = NO_TRUST) -> ModelContent:
    """Return what a model file says of itself, or raise `ModelError` with the exact spot.

    Args:
        path: a `.keras` or `.h5` file, or a SavedModel folder.
        trust: what may pass that is not Keras' own.
    """
    try:
        if path.is_dir():
            check_saved_model(path, trust)
            return ModelContent("", None)
        if path.suffix.lower() == ".keras":
            return _check_keras(path, trust)
        return _check_h5(path, trust)
    except RecursionError as error:
        raise refused("its configuration is nested too deep", "model", path) from error
    except MemoryError as error:
        raise unreadable("a model", error, path) from error


def _check_keras(path: Path, trust: Trust) -> ModelContent:
    if path.suffix != ".keras":
        # By this name Keras would take it for HDF5.
        raise ModelError("its name must end in .keras", subject=path, hint="rename the file")
    metadata, config = check_archive(path)
    sizes = check_config(config, path, trust)
    weights = open_weights(path)
    if weights is None:
        raise ModelError("it has no weights", subject=path, hint="save it again with model.save")
    with weights:
        _check_sizes(sizes, check_hdf5(weights, path), path)
    version = metadata.get("keras_version") if isinstance(metadata, dict) else None
    return ModelContent(str(version or ""), config)


def _check_h5(path: Path, trust: Trust) -> ModelContent:
    dimensions = check_hdf5(path, path)
    config = read_attribute(path, "model_config")
    if config is None:
        raise ModelError(
            "it holds weights without the model around them",
            subject=path,
            hint="save the whole model (model.save), not save_weights",
        )
    _check_sizes(check_config(config, path, trust), dimensions, path)
    return ModelContent(str(read_attribute(path, "keras_version") or ""), config)


def _check_sizes(sizes: Iterable[DeclaredSize], dimensions: set[int], path: Path) -> None:
    """Refuse a width that no weight of the file has: building the layer would exhaust memory."""
    for size in sizes:
        if not any(dimension and dimension % size.value == 0 for dimension in dimensions):
            raise refused(f"{size.key} of {size.value} that no weight has", size.where, path)
