"""Compares an imported model with what Keras 3 computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras


def flat(value: Any) -> list[Any]:
    """Return the leaves of nested lists and dictionaries, keys sorted."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in flat(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def largest_difference(model: keras.Model, expected: Path) -> float:
    """Return the largest difference to Keras 3's outputs, relative to the largest of each."""
    with np.load(expected) as arrays:
        given = [arrays[f"x{i}"] for i in range(len(model.inputs))]
        wanted = [arrays[f"y{i}"] for i in range(len(model.outputs))]
    outputs = flat(model(tf.nest.pack_sequence_as(model.input, given), training=False))
    differences = []
    for output, value in zip(outputs, wanted, strict=True):
        got = np.asarray(tf.cast(output, tf.float32))
        assert got.shape == value.shape
        differences.append(np.abs(got - value).max() / np.abs(value).max())
    return float(max(differences))
