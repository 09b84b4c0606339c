"""Models saved by Keras 3, rebuilt from tf-keras' layers.

A file of Keras 3 is never loaded by Keras itself: its configuration is read as data, every layer is
built anew from the layer of tf-keras that computes the same, and the weights are assigned to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.model.keras3.graph import ConvertedModel, build_model
from shrink.model.keras3.layers import UnsupportedLayerError
from shrink.model.keras3.weights import assign_flat_weights, assign_weights
from shrink.model.scan_files import open_weights

_HINT = (
    "replace that layer in the Keras 3 model, or give a function that builds the model with "
    "tf_keras (file.py:build)"
)


def import_keras3(path: Path, config: Any) -> keras.Model:
    """Return the tf-keras model that computes what a model of Keras 3 computes.

    Args:
        path: a scanned `.keras` or `.h5` file that Keras 3 saved, with any backend.
        config: its configuration, as `check_model_file` returns it.

    Raises:
        ModelError: a layer has no counterpart (it is named, with the reason), or the weights do
            not fit the layers.
    """
    try:
        carried = build_model(config)
        with _weights_file(path) as file:
            if path.suffix == ".keras":
                assign_weights(carried, file)
            else:
                assign_flat_weights(carried, file)
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
            f"Keras 3 saved it, and it cannot be rebuilt with tf-keras: {_first_line(error)}",
            subject=path,
            hint=_HINT,
        ) from error
    return carried.model


@contextlib.contextmanager
def _weights_file(path: Path) -> Iterator[Any]:
    source = open_weights(path) if path.suffix == ".keras" else None
    try:
        with h5py.File(source if source is not None else path, "r") as file:
            yield file
    finally:
        if source is not None:
            source.close()


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:300] if text else ''}"


__all__ = ["ConvertedModel", "import_keras3"]
