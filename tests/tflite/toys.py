"""Toy models and calibration data that the tests of TFLite and of measuring share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.tflite.convert import convert

L = keras.layers


def to_float32(model: keras.Model | Path) -> bytes:
    """Return the float .tflite file of a model or a SavedModel."""
    return convert(model, "float32").content


def small_cnn() -> keras.Model:
    """Images (8, 8, 1) to 3 logits; 4·(9+1) + 4·3+3 = 55 parameters."""
    keras.utils.set_random_seed(0)
    inputs = L.Input((8, 8, 1), name="picture")
    x = L.Conv2D(4, 3, padding="same", activation="relu", name="conv")(inputs)
    x = L.AveragePooling2D(8, name="pool")(x)
    return keras.Model(inputs, L.Dense(3, name="logits")(L.Flatten()(x)))


def two_by_two() -> keras.Model:
    """Inputs named so that the converter reorders them, and outputs of 3 classes and 1 value."""
    keras.utils.set_random_seed(0)
    wide, narrow = L.Input((6,), name="zebra"), L.Input((4,), name="ant")
    x = L.Concatenate()([L.Dense(5, activation="relu")(wide), narrow])
    return keras.Model([wide, narrow], [L.Dense(3, name="classes")(x), L.Dense(1, name="value")(x)])


def samples(model: keras.Model, count: int, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
    """Yield `count` random examples, each float32 arrays with a batch of 1 by the inputs' names."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield {
            name: random.normal(size=(1, *t.shape[1:])).astype(np.float32)
            for name, t in zip(model.input_names, model.inputs, strict=True)
        }


def batch(model: keras.Model, count: int, seed: int = 1) -> list[np.ndarray]:
    """Return `count` random examples, one float32 array per model input."""
    columns = zip(*(one.values() for one in samples(model, count, seed)), strict=True)
    return [np.concatenate(column) for column in columns]
