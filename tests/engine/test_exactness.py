"""Which layers make a split batch inexact."""

from __future__ import annotations

from typing import Any

import pytest
import tf_keras as keras

from shrink.engine.config import BatchNormMode
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
