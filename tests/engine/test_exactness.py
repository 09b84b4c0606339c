"""Which layers make a split batch inexact."""

from __future__ import annotations

from typing import Any

import tf_keras as keras

from shrink.engine.exactness import inexact_because, synchronising_layers


def nested_model() -> Any:
    layers = keras.layers
    inner_inputs = layers.Input((4,))
    inner = keras.Model(inner_inputs, layers.BatchNormalization(name="inner_norm")(inner_inputs))
    inputs = layers.Input((4,))
    hidden = layers.GaussianNoise(0.1, name="noise")(inner(inputs))
    hidden = layers.Dropout(0.0, name="no_drop")(hidden)
    frozen = layers.BatchNormalization(name="frozen_norm", trainable=False)
    return keras.Model(inputs, frozen(hidden))


def names(reasons: tuple[str, ...]) -> list[str]:
    return [reason.split(":")[0] for reason in reasons]


def test_inexact_because_finds_nested_layers_when_split() -> None:
    reasons = inexact_because(nested_model(), split=True, frozen_batch_norm=False)
    assert names(reasons) == ["inner_norm", "noise"]


def test_inexact_because_leaves_out_batch_norm_when_frozen() -> None:
    reasons = inexact_because(nested_model(), split=True, frozen_batch_norm=True)
    assert names(reasons) == ["noise"]


def test_inexact_because_is_empty_when_nothing_is_split() -> None:
    assert inexact_because(nested_model(), split=False, frozen_batch_norm=False) == ()


def test_synchronising_layers_finds_synchronised_batch_norm() -> None:
    norm = keras.layers.BatchNormalization(synchronized=True, name="sync")
    model = keras.Sequential([keras.layers.Input((4,)), norm])
    assert synchronising_layers(model) == ("sync",)
    assert synchronising_layers(nested_model()) == ()
