from __future__ import annotations

import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.graph.macs import count_macs
from shrink.tflite import convert

L = keras.layers


def macs(shape: tuple[int, ...], *layers: keras.layers.Layer) -> int:
    x = inputs = L.Input(shape)
    for layer in layers:
        x = layer(x)
    return count_macs(convert.to_float32(keras.Model(inputs, x)))


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
    content = convert.to_float32(keras.Model([left, right], product([left, right])))
    assert count_macs(content) == 4 * 5 * 6


def test_count_macs_adds_up_over_layers() -> None:
    layers = [L.Conv2D(4, 3, name="a"), L.ReLU(), L.Flatten(), L.Dense(10, name="b")]
    assert macs((6, 6, 2), *layers) == 4 * 4 * 4 * 3 * 3 * 2 + 4 * 4 * 4 * 10
