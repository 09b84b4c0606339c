"""Models that are refused once they are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import tf_keras as keras

from shrink.base.errors import ModelError
from shrink.model.load import check_stateless

L = keras.layers


def recurrent(layer: keras.layers.Layer) -> keras.Model:
    inputs = L.Input(batch_shape=(1, 5, 3))
    inner = keras.Model(inputs, layer(inputs), name="inner")
    again = L.Input(batch_shape=(1, 5, 3))
    return keras.Model(again, L.Dense(2)(inner(again)))


@pytest.mark.parametrize(
    "layer",
    [
        lambda: L.LSTM(4, stateful=True, name="memory"),
        lambda: L.GRU(4, stateful=True, unroll=True, name="memory"),
        lambda: L.Bidirectional(L.SimpleRNN(4, stateful=True), name="memory"),
    ],
)
def test_layers_that_keep_state_between_examples_are_refused_by_name(layer: object) -> None:
    assert callable(layer)
    with pytest.raises(ModelError, match=r"memory|simple_rnn") as caught:
        check_stateless(recurrent(layer()), Path("model.keras"))
    assert "stateful=False" in str(caught.value.hint)


def test_layers_that_start_anew_are_not_refused() -> None:
    check_stateless(recurrent(L.LSTM(4)), Path("model.keras"))
