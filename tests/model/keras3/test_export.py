"""tf-keras models handed back to Keras 3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras as keras3
import numpy as np
import pytest
import tf_keras as keras

from models import ds_cnn, resnet
from shrink.base.errors import ModelError
from shrink.model.keras3.export import to_keras3

layers = keras.layers


def _recurrent() -> keras.Model:
    inputs = layers.Input((6,), dtype="int32", name="words")
    hidden = layers.Embedding(9, 4)(inputs)
    hidden = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(hidden)
    hidden = layers.TimeDistributed(layers.Dense(5, activation="tanh"))(hidden)
    return keras.Model(inputs, layers.GRU(2)(hidden))


def _two_towers() -> keras.Model:
    shared = layers.Dense(4, kernel_regularizer="l2")
    left, right = layers.Input((3,), name="left"), layers.Input((3,), name="right")
    a, b = shared(left), layers.LeakyReLU(alpha=0.1)(shared(right))
    joined = layers.Concatenate()([a * b, a + 2.0])
    return keras.Model([left, right], [layers.Dense(2)(joined), joined[:, :3]])


def _attention() -> keras.Model:
    inputs = layers.Input((5, 8))
    hidden = layers.MultiHeadAttention(2, 3)(inputs, inputs)
    hidden = layers.LayerNormalization()(layers.Add()([inputs, hidden]))
    return keras.Model(inputs, layers.GlobalAveragePooling1D()(hidden))


def _nested() -> keras.Model:
    inner = keras.Sequential(
        [layers.Input((8, 8, 3)), layers.SeparableConv2D(4, 3, activation="relu6"), layers.PReLU()]
    )
    inputs = layers.Input((8, 8, 3))
    hidden = layers.Conv2DTranspose(2, 3, strides=2)(inner(inputs))
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(hidden)))


@pytest.mark.parametrize(
    "build", [_recurrent, _two_towers, _attention, _nested, resnet.build, ds_cnn.build]
)
def test_to_keras3_gives_the_same_outputs_when_saved_and_loaded(
    build: Callable[[], keras.Model], tmp_path: Path
) -> None:
    model = build()
    random = np.random.default_rng(1)
    model.set_weights([random.uniform(0.1, 0.5, w.shape) for w in model.get_weights()])
    to_keras3(model).save(tmp_path / "model.keras")
    loaded = keras3.saving.load_model(tmp_path / "model.keras", compile=False)
    feed = [
        random.integers(0, 9, [2, *t.shape[1:]]).astype(t.dtype.as_numpy_dtype)
        for t in model.inputs
    ]
    ours = keras3.tree.flatten(model(feed if len(feed) > 1 else feed[0]))
    theirs = keras3.tree.flatten(loaded(feed if len(feed) > 1 else feed[0]))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=1e-4, atol=1e-5)
    assert not isinstance(loaded, keras.Model)


def test_to_keras3_keeps_adapted_statistics() -> None:
    rows = np.random.default_rng(0).normal([3.0, -2.0], [2.0, 0.5], (50, 2)).astype(np.float32)
    adapted = layers.Normalization()
    adapted.adapt(rows)
    made = to_keras3(keras.Sequential([layers.Input((2,)), adapted]))
    wanted = (rows - rows.mean(0)) / rows.std(0)
    np.testing.assert_allclose(made.predict(rows, verbose=0), wanted, atol=1e-4)


def test_to_keras3_names_the_layer_without_counterpart() -> None:
    inputs = layers.Input((4, 4, 1))
    outputs = layers.ThresholdedReLU(0.3, name="odd")(inputs)
    with pytest.raises(ModelError, match="odd: Keras 3 cannot take over ThresholdedReLU"):
        to_keras3(keras.Model(inputs, outputs))
