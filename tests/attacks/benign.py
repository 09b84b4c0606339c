"""Writes models that nobody should refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras as keras

L = keras.layers
IMAGE, SERIES, VECTOR = (8, 8, 4), (6, 4), (8,)

LAYERS: list[tuple[Callable[[], Any], tuple[int, ...]]] = [
    *((layer, IMAGE) for layer in (
        lambda: L.Conv2D(4, 3, activation="relu", kernel_regularizer="l2"),
        lambda: L.Conv2D(4, 3, kernel_initializer=keras.initializers.HeNormal(seed=3)),
        lambda: L.DepthwiseConv2D(3), lambda: L.SeparableConv2D(4, 3),
        lambda: L.Conv2DTranspose(4, 3), lambda: L.BatchNormalization(),
        lambda: L.LayerNormalization(), lambda: L.GroupNormalization(2),
        lambda: L.MaxPooling2D(), lambda: L.AveragePooling2D(),
        lambda: L.GlobalAveragePooling2D(), lambda: L.GlobalMaxPooling2D(),
        lambda: L.UpSampling2D(), lambda: L.ZeroPadding2D(), lambda: L.Cropping2D(),
        lambda: L.Flatten(), lambda: L.Permute((3, 1, 2)), lambda: L.Reshape((16, 16)),
        lambda: L.Rescaling(1 / 255), lambda: L.Resizing(4, 4), lambda: L.RandomFlip(),
        lambda: L.RandomRotation(0.1), lambda: L.Normalization(), lambda: L.SpatialDropout2D(0.1),
        lambda: L.PReLU(), lambda: L.LeakyReLU(), lambda: L.ELU(), lambda: L.ReLU(6.0),
        lambda: L.Softmax(), lambda: L.GaussianNoise(0.1), lambda: L.UnitNormalization(),
        lambda: L.Activation("swish"), lambda: L.Activation(tf.nn.gelu),
    )),
    *((layer, SERIES) for layer in (
        lambda: L.LSTM(3), lambda: L.GRU(3), lambda: L.SimpleRNN(3),
        lambda: L.Bidirectional(L.LSTM(3)), lambda: L.TimeDistributed(L.Dense(3)),
        lambda: L.RNN([L.LSTMCell(3), L.GRUCell(2)]), lambda: L.Conv1D(3, 3, padding="causal"),
        lambda: L.Masking(), lambda: L.MaxPooling1D(), lambda: L.GlobalAveragePooling1D(),
    )),
    *((layer, VECTOR) for layer in (
        lambda: L.Dense(3, activation="softmax"), lambda: L.Dropout(0.5),
        lambda: L.Dense(3, kernel_constraint="max_norm", bias_regularizer="l1"),
        lambda: L.RepeatVector(3), lambda: L.AlphaDropout(0.1),
        lambda: L.Dense(3, dtype="mixed_bfloat16"), lambda: L.Dense(70_000),
    )),
]  # fmt: skip


def single(layer: Any, shape: tuple[int, ...]) -> Any:
    """Return a functional model of one layer."""
    x = keras.Input(shape)
    return keras.Model(x, layer(x))


def functions() -> Any:
    """Return a model with TensorFlow's functions between the layers, and one in another."""
    x = keras.Input(IMAGE)
    y = tf.nn.relu6(L.Conv2D(4, 3)(x) + 1.0) * 2.0
    y = tf.concat([y[:, 1:3], y[:, :2]], axis=1)
    return keras.Model(x, tf.reduce_mean(y, axis=[1, 2]))


def nested() -> Any:
    """Return a compiled model with another inside and two outputs."""
    inner = keras.Sequential([keras.Input(VECTOR), L.Dense(4), L.Dropout(0.1)])
    x = keras.Input(VECTOR)
    y = inner(x)
    model = keras.Model(x, {"a": L.Dense(1)(y), "b": L.Dense(2)(y)})
    model.compile("adam", {"a": own_loss, "b": "mse"}, metrics={"a": "mae"})
    return model


def own_loss(expected: Any, given: Any) -> Any:
    """Return a loss of the model's author."""
    return tf.reduce_mean(tf.square(expected - given))


def words() -> Any:
    """Return a text model that carries its vocabulary."""
    x = keras.Input((1,), dtype="string")
    y = L.StringLookup(vocabulary=["a", "b"])(x)
    return keras.Model(x, L.Dense(2)(L.Flatten()(L.Embedding(5, 3)(y))))


def write(folder: str) -> None:
    """Save all models."""
    target = Path(folder)
    models = [single(layer(), shape) for layer, shape in LAYERS]
    models += [functions(), nested(), words()]
    for index, model in enumerate(models):
        model.save(target / f"{index:03d}.keras")
        if model.input.dtype != tf.string:
            model.save(target / f"{index:03d}.h5")
    for index in (0, 33, len(LAYERS), len(LAYERS) + 1):
        models[index].save(target / f"{index:03d}-saved")
        models[index].export(target / f"{index:03d}-exported")
