"""Which layers make a split batch inexact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.engine.config import BatchNormMode, TrainingConfig
from shrink.engine.exactness import inexact_because, synchronising_layers
from shrink.engine.record import TrainingRecord
from tests.engine._toys import splits, trained


def nested_model() -> Any:
    layers = keras.layers
    inner_inputs = layers.Input((4,))
    inner = keras.Model(inner_inputs, layers.BatchNormalization(name="inner_norm")(inner_inputs))
    inputs = layers.Input((4,))
    hidden = layers.GaussianNoise(0.1, name="noise")(inner(inputs))
    hidden = layers.Dropout(0.0, name="no_drop")(hidden)
    frozen = layers.BatchNormalization(name="frozen_norm", trainable=False)
    return keras.Model(inputs, frozen(hidden))


def reasons(replicas: int, accumulation_steps: int, batch_norm: BatchNormMode) -> list[str]:
    found = inexact_because(
        nested_model(),
        replicas=replicas,
        accumulation_steps=accumulation_steps,
        batch_norm=batch_norm,
    )
    return [reason.split(":")[0] for reason in found]


@pytest.mark.parametrize(("replicas", "accumulation_steps"), [(2, 1), (1, 2)])
def test_inexact_because_finds_nested_layers_when_split(
    replicas: int, accumulation_steps: int
) -> None:
    assert reasons(replicas, accumulation_steps, "per_micro_batch") == ["inner_norm", "noise"]


def test_inexact_because_leaves_out_batch_norm_when_frozen() -> None:
    assert reasons(2, 2, "frozen") == ["noise"]


def test_inexact_because_leaves_out_batch_norm_when_only_replicas_split_and_they_synchronise() -> (
    None
):
    assert reasons(2, 1, "synchronized") == ["noise"]
    assert reasons(2, 2, "synchronized") == ["inner_norm", "noise"]


def test_inexact_because_is_empty_when_nothing_is_split() -> None:
    assert reasons(1, 1, "per_micro_batch") == []


def test_synchronising_layers_finds_synchronised_batch_norm() -> None:
    norm = keras.layers.BatchNormalization(synchronized=True, name="sync")
    model = keras.Sequential([keras.layers.Input((4,)), norm])
    assert synchronising_layers(model) == ("sync",)
    assert synchronising_layers(nested_model()) == ()


class PenalisedSum(keras.layers.Layer):
    """Adds the sum of its inputs' squares to the loss."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(0.1 * tf.reduce_sum(tf.square(inputs)))
        return inputs


class Noise(keras.layers.Layer):
    """Draws with an operation of TensorFlow, as layers of one's own do."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        super().__init__()
        self.draw = draw

    def call(self, inputs: Any) -> Any:
        return inputs + self.draw(tf.shape(inputs))


class Counting(keras.layers.Layer):
    """Divides by the number of its forward passes."""

    def build(self, shape: Any) -> None:
        self.passes = self.add_weight(name="passes", initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: Any = None) -> Any:
        return inputs / (self.passes.assign_add(1.0) if training else 1.0)


def in_branch(inputs: Any) -> Any:
    """Draw where a condition holds, in a function of the graph's library."""
    return tf.cond(
        tf.reduce_all(tf.abs(inputs) < 9),
        lambda: inputs + tf.random.normal(tf.shape(inputs)),
        lambda: inputs,
    )


def as_image(layer: Any) -> Callable[[Any], Any]:
    """Apply a layer of images to (n, 4, 3)."""
    return lambda inputs: layers.Reshape((4, 3))(layer(layers.Reshape((4, 3, 1))(inputs)))


layers = keras.layers
LAYERS: dict[str, Callable[[], Any]] = {
    "simple_rnn": lambda: layers.SimpleRNN(3, return_sequences=True),
    "lstm": lambda: layers.LSTM(3, return_sequences=True),
    "sum": PenalisedSum,
    "dropped_lstm": lambda: layers.LSTM(3, dropout=0.5, return_sequences=True),
    "recurrently_dropped": lambda: layers.GRU(3, recurrent_dropout=0.5, return_sequences=True),
    "gru": lambda: layers.Bidirectional(layers.GRU(3, return_sequences=True)),
    "time_distributed": lambda: layers.TimeDistributed(layers.Dense(3, kernel_regularizer="l2")),
    "dropout": lambda: layers.Dropout(0.5, seed=1),
    "no_dropout": lambda: layers.Dropout(0.0),
    "spatial_dropout": lambda: layers.SpatialDropout1D(0.5),
    "alpha_dropout": lambda: layers.AlphaDropout(0.5),
    "noise": lambda: layers.GaussianNoise(0.5),
    "no_noise": lambda: layers.GaussianNoise(0.0),
    "batch_norm": lambda: layers.BatchNormalization(),
    "layer_norm": lambda: layers.LayerNormalization(),
    "group_norm": lambda: layers.GroupNormalization(1),
    "unit_norm": lambda: layers.UnitNormalization(),
    "activity": lambda: layers.Dense(3, activity_regularizer="l2"),
    "spectral_norm": lambda: layers.SpectralNormalization(layers.Dense(3)),
    "normal": lambda: Noise(tf.random.normal),
    "uniform": lambda: Noise(tf.random.uniform),
    "generator": lambda: Noise(tf.random.Generator.from_seed(1).normal),
    "stateless": lambda: Noise(lambda shape: tf.random.stateless_normal(shape, [1, 2])),
    "shuffle": lambda: layers.Lambda(lambda x: x + tf.random.shuffle(tf.range(3.0))),
    "activation": lambda: layers.Dense(3, activation=lambda x: tf.nn.dropout(x, 0.5)),
    "branch": lambda: layers.Lambda(in_branch),
    "operation": lambda: lambda x: x + tf.random.normal(tf.shape(x)),
    "counting": Counting,
    "batch_mean": lambda: layers.Lambda(lambda x: x - tf.reduce_mean(x, axis=0)),
    "per_example_mean": lambda: layers.Lambda(lambda x: x - tf.reduce_mean(x, axis=1)[:, None]),
    "attention": lambda: lambda x: layers.MultiHeadAttention(2, 2)(x, x),
    "dropped_attention": lambda: lambda x: layers.MultiHeadAttention(2, 2, dropout=0.5)(x, x),
    "stateful": lambda: layers.SimpleRNN(3, return_sequences=True, stateful=True),
    "flip": lambda: as_image(layers.RandomFlip()),
    "rotation": lambda: as_image(layers.RandomRotation(0.3)),
    "zoom": lambda: as_image(layers.RandomZoom(0.3)),
    "translation": lambda: as_image(layers.RandomTranslation(0.5, 0.5)),
    # TensorFlow has no gradient of it.
    "contrast": lambda: lambda x: x + as_image(layers.RandomContrast(0.9))(tf.stop_gradient(x)),
    "brightness": lambda: as_image(layers.RandomBrightness(0.9, value_range=(0, 1))),
    "crop": lambda: (
        lambda x: layers.ZeroPadding1D((1, 1))(
            layers.Reshape((2, 3))(layers.RandomCrop(2, 3)(layers.Reshape((4, 3, 1))(x)))
        )
    ),
}
DEFAULT = ("simple_rnn", "sum", "normal", "branch", "batch_mean", "flip")


@pytest.mark.parametrize(
    "kind",
    [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in LAYERS],
)
def test_train_claims_exactness_where_micro_batches_give_the_weights_of_one_batch(
    kind: str,
) -> None:
    whole, _ = trained_of(kind, micro_batch_size=8)
    split, record = trained_of(kind, micro_batch_size=2)
    pairs = zip(whole.get_weights(), split.get_weights(), strict=True)
    difference = max(float(np.abs(a - b).max()) for a, b in pairs)
    assert record.accumulation_steps == 4
    assert record.exact == (difference <= 2e-6), (difference, record.inexact_because)


def trained_of(kind: str, *, micro_batch_size: int) -> tuple[Any, TrainingRecord]:
    keras.utils.set_random_seed(0)
    inputs = keras.layers.Input((4, 3), micro_batch_size if kind == "stateful" else None)
    hidden = LAYERS[kind]()(keras.layers.Dense(3)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(hidden)))
    random = np.random.default_rng(0)
    data = splits(random.normal(size=(8, 4, 3)).astype(np.float32), np.arange(8) % 2)
    config = TrainingConfig.model_validate(
        {
            "global_batch_size": 8,
            "micro_batch_size": micro_batch_size,
            "optimizer": {"name": "sgd", "learning_rate": 0.1},
        },
    )
    return model, trained(model, data, config)


def test_inexact_because_names_losses_that_a_model_adds() -> None:
    inputs = keras.layers.Input((4,))
    hidden = keras.layers.Dense(4, activity_regularizer="l2")(inputs)
    model = keras.Model(inputs, hidden)
    settings: dict[str, Any] = {"replicas": 1, "accumulation_steps": 2}
    assert inexact_because(model, **settings, batch_norm="frozen") == ()
    model.add_loss(tf.reduce_sum(hidden))
    (reason,) = inexact_because(model, **settings, batch_norm="frozen")
    assert "add_loss" in reason
