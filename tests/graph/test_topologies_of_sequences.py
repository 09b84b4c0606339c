"""Recurrent layers and attention; one hard topology per test, as in `test_topologies`.

Loops over the steps are unrolled where they can be, for building them takes seconds each.
"""

from __future__ import annotations

from typing import Any

import pytest
import tf_keras as keras

from tests.graph.equivalence import check

L = keras.layers
SLOW = pytest.mark.slow


def sequence(features: int = 4, steps: int = 3) -> Any:
    return L.Input((steps, features))


@pytest.mark.parametrize(
    "kind",
    [
        L.LSTM(6, unroll=True, name="recurrent"),
        L.GRU(6, unroll=True, name="recurrent"),
        pytest.param(L.LSTM(6, activation="relu", use_bias=False, name="recurrent"), marks=SLOW),
        pytest.param(L.GRU(6, reset_after=False, name="recurrent"), marks=SLOW),
        pytest.param(L.SimpleRNN(6, name="recurrent"), marks=SLOW),
    ],
    ids=["lstm", "gru", "lstm-relu", "gru-reset-before", "simple"],
)
def test_recurrent_layer_loses_units(kind: keras.layers.Layer) -> None:
    i = sequence()
    x = kind(L.Dense(7, name="a")(i))
    check(keras.Model(i, L.Dense(3)(x)), {"a": 7, "recurrent": 6})


def test_stacked_recurrent_layers() -> None:
    i = sequence()
    x = L.LSTM(6, unroll=True, return_sequences=True, name="first")(i)
    x = L.GRU(5, unroll=True, name="second")(x)
    check(keras.Model(i, L.Dense(3)(x)), {"first": 6, "second": 5})


@pytest.mark.slow
def test_residual_add_over_a_recurrent_layer() -> None:
    i = sequence()
    x = L.Dense(6, name="a")(i)
    x = L.Add()([x, L.LSTM(6, unroll=True, return_sequences=True, name="recurrent")(x)])
    check(keras.Model(i, L.Dense(3)(L.Flatten()(x))), {"a+recurrent": 6})


def test_states_of_an_encoder_start_a_decoder() -> None:
    i, j = sequence(), sequence(3, 2)
    encoded, *states = L.LSTM(6, unroll=True, return_state=True, name="encoder")(i)
    decoded = L.LSTM(6, unroll=True, return_sequences=True, name="decoder")(j, initial_state=states)
    joined = L.Concatenate()([encoded, L.GlobalAveragePooling1D()(decoded)])
    check(keras.Model([i, j], L.Dense(3)(joined)), {"encoder+decoder": 6})


def test_state_given_by_a_dense_layer() -> None:
    i, j = sequence(), L.Input((4,))
    state = L.Dense(6, name="state")(j)
    x = L.GRU(6, unroll=True, name="recurrent")(i, initial_state=state)
    check(keras.Model([i, j], L.Dense(3)(x)), {"state+recurrent": 6})


@pytest.mark.parametrize(
    ("kind", "merge_mode"),
    [
        (L.LSTM, "concat"),
        pytest.param(L.GRU, "concat", marks=SLOW),
        pytest.param(L.LSTM, "sum", marks=SLOW),
        pytest.param(L.GRU, "ave", marks=SLOW),
    ],
)
def test_bidirectional_loses_units_of_both_ways(kind: Any, merge_mode: str) -> None:
    i = sequence()
    x = L.Bidirectional(kind(6, unroll=True, name="one"), merge_mode=merge_mode, name="ways")(i)
    check(keras.Model(i, L.Dense(3)(x)), {"ways": 6})


@pytest.mark.slow
def test_bidirectional_with_a_backward_layer_and_states() -> None:
    i = sequence()
    backward = L.LSTM(6, unroll=True, return_sequences=True, return_state=True, go_backwards=True)
    forward = L.LSTM(6, unroll=True, return_sequences=True, return_state=True)
    x, *states = L.Bidirectional(forward, backward_layer=backward, name="first")(i)
    x = L.Bidirectional(L.LSTM(6, unroll=True), name="second")(x, initial_state=states)
    check(keras.Model(i, L.Dense(3)(x)), {"first+second": 6})


def test_bidirectional_with_different_widths_is_protected() -> None:
    i = sequence()
    ways = L.Bidirectional(
        L.LSTM(6, unroll=True), backward_layer=L.LSTM(5, unroll=True, go_backwards=True)
    )
    check(keras.Model(i, L.Dense(3)(L.Dense(6, name="a")(ways(i)))), {"a": 6})


@pytest.mark.slow
def test_convolutional_recurrent_layer() -> None:
    i = L.Input((2, 6, 6, 2))
    x = L.ConvLSTM2D(6, 3, padding="same", return_sequences=True, name="a")(i)
    x = L.ConvLSTM2D(5, 3, name="b")(x)
    check(keras.Model(i, L.Dense(3)(L.GlobalAveragePooling2D()(x))), {"a": 6, "b": 5})


def test_words_that_are_masked() -> None:
    i = L.Input((3,), dtype="int32")
    x = L.Embedding(9, 8, mask_zero=True, name="words")(i)
    x = L.Bidirectional(L.LSTM(4, unroll=True), name="ways")(x)
    check(keras.Model(i, L.Dense(3)(x)), {"words": 8, "ways": 4})


@pytest.mark.slow
def test_recurrent_layer_called_twice() -> None:
    i, j = sequence(), sequence()
    shared = L.LSTM(6, unroll=True, name="shared")
    x = L.Concatenate()([shared(i), shared(j)])
    check(keras.Model([i, j], L.Dense(3)(x)), {"shared": 6})


def test_units_that_a_softmax_mixes_are_protected() -> None:
    i = sequence()
    x = L.LSTM(6, unroll=True, activation="softmax")(i)
    check(keras.Model(i, L.Dense(3)(L.Dense(5, name="a")(x))), {"a": 5})


@pytest.mark.slow
def test_recurrent_layer_with_its_own_mask_is_protected() -> None:
    i, mask = sequence(), L.Input((3,), dtype="bool")
    x = L.LSTM(6, unroll=True)(L.Dense(7)(i), mask=mask)
    check(keras.Model([i, mask], L.Dense(3)(L.Dense(5, name="a")(x))), {"a": 5})


def test_attention_loses_whole_heads() -> None:
    inputs = keras.Input((5, 6))
    x = L.Dense(8, name="embed")(inputs)
    attended = L.MultiHeadAttention(4, 3, name="attention")(x, x)
    check(keras.Model(inputs, L.Dense(2)(L.Add()([x, attended]))), {"embed": 8, "attention": 4})


def test_attention_over_another_sequence() -> None:
    inputs, memory = keras.Input((5, 6)), keras.Input((7, 4))
    query, value = L.Dense(8, name="query")(inputs), L.Dense(6, name="value")(memory)
    attended = L.MultiHeadAttention(2, 3, name="attention")(query, value=value, key=value)
    check(
        keras.Model([inputs, memory], L.Dense(2)(attended)),
        {"query": 8, "value": 6, "attention": 2},
    )


@pytest.mark.parametrize("equation", ["abc,cd->abd", "...x,xy->...y"])
def test_einsum_dense_over_the_last_axis_is_a_dense_layer(equation: str) -> None:
    i = sequence()
    shape, bias = (3, 6) if equation[0] == "a" else 6, equation[-1]
    x = L.EinsumDense(equation, shape, bias_axes=bias, activation="gelu", name="hidden")(i)
    x = L.EinsumDense("abc,cd->abd", (None, 5), name="out")(x)
    check(keras.Model(i, L.Dense(3)(x)), {"hidden": 6, "out": 5})


@pytest.mark.parametrize(
    ("equation", "shape", "bias"),
    [
        ("abc,cde->abde", (3, 2, 4), "e"),
        ("abc,bcd->abd", (3, 4), "d"),
        ("abc,bd->adc", (3, 4), None),
        ("abc,cd->abd", (3, 4), "bd"),
    ],
)
def test_other_einsum_layers_keep_their_channels(
    equation: str, shape: tuple[int, ...], bias: str | None
) -> None:
    i = sequence()
    x = L.EinsumDense(equation, shape, bias_axes=bias)(L.Dense(4, name="before")(i))
    x = L.Dense(5, name="after")(L.Flatten()(x))
    check(keras.Model(i, L.Dense(2)(x)), {"after": 5})
