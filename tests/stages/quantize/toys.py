"""A small trained-like model and its data, shared by the tests of quantization."""

from __future__ import annotations

import functools

import numpy as np
import tf_keras as keras

from shrink.tflite.convert import convert

L = keras.layers


def cnn() -> keras.Model:
    """Images (8, 8, 3) to 4 probabilities: two convolutions, a depthwise one, a dense layer."""
    keras.utils.set_random_seed(0)
    inputs = L.Input((8, 8, 3), name="picture")
    x = L.Conv2D(16, 3, padding="same", activation="relu", name="first")(inputs)
    x = L.Conv2D(16, 3, strides=2, padding="same", activation="relu", name="second")(x)
    x = L.DepthwiseConv2D(3, padding="same", activation="relu", name="depthwise")(x)
    x = L.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(inputs, L.Dense(4, activation="softmax", name="classes")(x))


@functools.cache
def float_cnn() -> bytes:
    """The float .tflite file of `cnn`."""
    return convert(cnn(), "float32").content


def images(count: int, seed: int = 0) -> np.ndarray:
    """Random images with the same smooth pattern of correlations, float32 (count, 8, 8, 3)."""
    random = np.random.default_rng(seed)
    coarse = random.normal(size=(count, 2, 2, 3))
    smooth = coarse.repeat(4, axis=1).repeat(4, axis=2)
    return (smooth + 0.3 * random.normal(size=(count, 8, 8, 3))).astype(np.float32)


def batches(count: int = 100, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """The same images by the name of the input, 50 at a time."""
    x = images(count, seed)
    return [{"picture": x[start : start + 50]} for start in range(0, count, 50)]
