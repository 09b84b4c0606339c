"""What an imported model computes, beside what Keras 3 computes from the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras as keras3
import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import ModelError

CLOSE = 1e-5
_TOO_FAR = 1e-3
"""Rounding can grow to this in a deep network; a layer that is not what it was is farther off."""
_OPEN_SIDE = 8


def compare_import(model: keras.Model, path: Path) -> str:
    """Return a sentence that says how near an import comes to Keras 3, on random inputs.

    Args:
        model: imported.
        path: the scanned file that Keras 3 saved; Keras 3 loads it here, in its safe mode.

    Raises:
        ModelError: an output differs by more than a thousandth of its largest value.
    """
    arrays = random_inputs(model)
    try:
        original = keras3.saving.load_model(path, compile=False)
        theirs = keras3.tree.flatten(original(_fed(original, arrays), training=False))
    except Exception as error:  # whatever its layers raise
        why = str(error).strip().splitlines()[:1]
        return f"imported from Keras 3, which cannot run the file here: {''.join(why)[:200]}"
    ours = tf.nest.flatten(model(tf.nest.pack_sequence_as(model.input, arrays), training=False))
    difference = largest_difference(ours, theirs)
    if difference > _TOO_FAR:
        raise ModelError(
            f"Keras 3 gives outputs that differ by {difference:.1e} of the largest one",
            subject=path,
            hint="report it with the model; nothing was computed with it",
        )
    exact = "" if difference <= CLOSE else ", more than the 1e-5 that rounding mostly takes"
    return f"imported from Keras 3: outputs agree to {difference:.1e} of the largest one{exact}"


def random_inputs(model: keras.Model) -> list[Any]:
    """Return two random examples for each input; open sides are 8 long.

    Integers are indices, of which 0 and 1 are always there.
    """
    random = np.random.default_rng(0)
    arrays = []
    for tensor in model.inputs:
        shape = [2, *(side or _OPEN_SIDE for side in tensor.shape[1:])]
        dtype = tensor.dtype.as_numpy_dtype
        integer = np.issubdtype(dtype, np.integer)
        values = random.choice([0, 1], shape) if integer else random.normal(size=shape)
        arrays.append(values.astype(dtype))
    return arrays


def largest_difference(ours: list[Any], theirs: list[Any]) -> float:
    """Return the largest difference of two lists of outputs, each relative to its own largest."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        first, second = np.asarray(tf.cast(a, tf.float32)), np.asarray(tf.cast(b, tf.float32))
        if first.shape != second.shape:
            return float("inf")
        scale = max(float(np.abs(second).max(initial=0)), 1e-12)
        worst = max(worst, float(np.abs(first - second).max(initial=0)) / scale)
    return worst


def _fed(model: Any, arrays: list[Any]) -> Any:
    structure = getattr(model, "_inputs_struct", None)
    if structure is None or len(arrays) == 1:
        return arrays[0] if len(arrays) == 1 else arrays
    return keras3.tree.pack_sequence_as(structure, arrays)
