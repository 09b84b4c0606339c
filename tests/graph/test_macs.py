from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.graph.macs import count_macs, macs_figure
from tests.tflite.toys import to_float32

L = keras.layers


def macs(shape: tuple[int, ...], *layers: keras.layers.Layer) -> int:
    x = inputs = L.Input(shape)
    for layer in layers:
        x = layer(x)
    count = count_macs(to_float32(keras.Model(inputs, x)))
    assert count is not None
    return count


@pytest.mark.parametrize(
    ("shape", "layer", "expected"),
    [
        ((8, 8, 3), L.Conv2D(5, 3, padding="same"), 8 * 8 * 5 * 3 * 3 * 3),
        ((9, 9, 3), L.Conv2D(5, (3, 2), strides=2), 4 * 4 * 5 * 3 * 2 * 3),
        ((8, 8, 4), L.Conv2D(6, 3, groups=2), 6 * 6 * 6 * 3 * 3 * 2),
        ((8, 8, 3), L.DepthwiseConv2D(3, depth_multiplier=2), 6 * 6 * 6 * 3 * 3),
        ((4, 4, 3), L.Conv2DTranspose(5, 2, strides=2), 4 * 4 * 3 * 2 * 2 * 5),
        ((16,), L.Dense(7), 16 * 7),
        ((6, 16), L.Dense(7), 6 * 16 * 7),
        ((10, 4), L.Conv1D(6, 3), 8 * 6 * 3 * 4),
        ((5, 3), L.LSTM(4), 5 * 4 * (4 * 3 + 4 * 4)),
        ((8, 8, 3), L.MaxPooling2D(2), 0),
        ((5, 3), L.GRU(4), 5 * 3 * (4 * 3 + 4 * 4)),
        ((5, 3), L.GRU(4, reset_after=False), 5 * 3 * (4 * 3 + 4 * 4)),
        ((5, 3), L.SimpleRNN(4, return_sequences=True), 5 * (4 * 3 + 4 * 4)),
        ((5, 3), L.Bidirectional(L.GRU(4)), 2 * 5 * 3 * (4 * 3 + 4 * 4)),
        # The state has the output's dimensions, and its own kernel has the size of the input's.
        ((4, 7, 6, 2), L.ConvLSTM2D(3, 3), 4 * 4 * (5 * 4 * 3) * (9 * 2 + 9 * 3)),
    ],
)
def test_count_macs_equals_the_closed_form(
    shape: tuple[int, ...], layer: keras.layers.Layer, expected: int
) -> None:
    assert macs(shape, layer) == expected


@pytest.mark.parametrize("transpose", [False, True])
def test_count_macs_counts_a_product_of_activations(transpose: bool) -> None:
    left = L.Input((4, 6))
    right = L.Input((5, 6) if transpose else (6, 5))
    product = L.Lambda(lambda pair: tf.matmul(pair[0], pair[1], transpose_b=transpose))
    content = to_float32(keras.Model([left, right], product([left, right])))
    assert count_macs(content) == 4 * 5 * 6


def test_count_macs_adds_up_over_layers() -> None:
    layers = [L.Conv2D(4, 3, name="a"), L.ReLU(), L.Flatten(), L.Dense(10, name="b")]
    assert macs((6, 6, 2), *layers) == 4 * 4 * 4 * 3 * 3 * 2 + 4 * 4 * 4 * 10


def test_count_macs_counts_the_steps_of_a_masked_lstm() -> None:
    expected = 6 * 4 * (5 * 3 + 5 * 5) + 6 * (5 * 2)
    layers = [L.Masking(), L.LSTM(5, return_sequences=True), L.Dense(2)]
    assert macs((6, 3), *layers) == expected


@pytest.mark.parametrize(("layer", "gates"), [(L.GRU, 3), (L.SimpleRNN, 1)])
def test_count_macs_of_a_loop_is_that_of_its_steps_written_out(layer: type, gates: int) -> None:
    # Written out, the converter leaves out the first step's product with a state of zeros.
    first = gates * 4 * 4
    assert macs((5, 3), layer(4)) == macs((5, 3), layer(4, unroll=True)) + first


def looped(turns: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> bytes:
    """Return a loop around a product of 6 x 6, which goes on as `turns(count, x)` says."""
    matrix = tf.constant(np.eye(6, dtype=np.float32) / 2)

    @tf.function(input_signature=[tf.TensorSpec((1, 6), tf.float32)])
    def model(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(
            turns, lambda count, x: (count + 2, tf.matmul(x, matrix)), (tf.constant(1), x)
        )[1]

    function = model.get_concrete_function()
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([function], model).convert())


def test_count_macs_follows_the_counter_of_a_loop() -> None:
    # From 1 in steps of 2, while below 10: 5 turns.
    assert count_macs(looped(lambda count, x: count < 10)) == 5 * 36


MATRIX = tf.constant(np.eye(6, dtype=np.float32) / 2)


def in_loop(kind: str, x: tf.Tensor) -> tf.Tensor:
    rows = tf.transpose(x, (1, 0, 2))
    if kind == "map_fn":
        return tf.map_fn(lambda row: row @ MATRIX, rows)
    if kind == "scan":
        return tf.scan(lambda state, row: (state + row) @ MATRIX, rows, rows[0])
    test, by, start, most = {
        "maximum_iterations": (lambda count, x: count < 100, 1, 0, 5),
        "up to a limit": (lambda count, x: count <= 6, 2, 0, None),
        "down": (lambda count, x: count > 0, -2, 7, None),
        "down to a limit": (lambda count, x: count >= 0, -3, 7, None),
    }[kind]

    def body(count: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return (count + by if by > 0 else count - -by), x @ MATRIX

    return tf.while_loop(test, body, (start, rows[0]), maximum_iterations=most)[1]


@pytest.mark.parametrize(
    ("kind", "turns"),
    [
        ("map_fn", 11),
        ("scan", 11),
        ("maximum_iterations", 5),
        ("up to a limit", 4),  # 0, 2, 4, 6
        ("down", 4),  # 7, 5, 3, 1
        ("down to a limit", 3),  # 7, 4, 1
    ],
)
def test_count_macs_multiplies_by_the_iterations_of_a_loop(kind: str, turns: int) -> None:
    @tf.function(input_signature=[tf.TensorSpec((1, 11, 6), tf.float32)])
    def model(x: tf.Tensor) -> tf.Tensor:
        return in_loop(kind, x)

    function = model.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], model)
    assert count_macs(bytes(converter.convert())) == turns * 36


@pytest.mark.parametrize(
    "turns",
    [
        lambda count, x: tf.reduce_sum(x) > 0.1,
        lambda count, x: count < tf.cast(tf.reduce_sum(x), tf.int32),
        lambda count, x: tf.cast(tf.cast(count, tf.float32) / 3, tf.int32) <= 1,
    ],
)
def test_count_macs_is_none_when_a_loop_ends_by_what_it_computes(
    turns: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> None:
    content = looped(turns)
    figure = macs_figure(content)
    assert figure.value is None
    assert "how often a loop turns" in figure.reason
    assert count_macs(content) is None


def test_count_macs_is_none_when_an_operator_is_custom() -> None:
    def erf(x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.Erfinv(x=x)

    inputs = L.Input((4,))
    model = keras.Model(inputs, L.Dense(3)(L.Lambda(erf)(inputs)))
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.allow_custom_ops = True
    figure = macs_figure(bytes(converter.convert()))
    assert figure.value is None
    assert "Erfinv" in figure.reason
