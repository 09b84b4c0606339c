from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.quantization.aware_model import FakeQuantize, rounded_kernel, with_quantized_kernel

L = keras.layers


def test_fake_quantize_rounds_and_clips_and_passes_gradients_inside() -> None:
    x = tf.Variable([-5.0, -0.6, 0.0, 0.4, 100.2, 300.0])
    with tf.GradientTape() as tape:
        y = FakeQuantize(-1.0, 254.0)(x)
    np.testing.assert_allclose(y, [-1, -1, 0, 0, 100, 254])
    np.testing.assert_array_equal(tape.gradient(y, x), [0, 1, 1, 1, 1, 0])


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (-0.3, 1.7)])
def test_fake_quantize_rounds_values_between_two_codes_to_the_even_one(
    low: float, high: float
) -> None:
    scale = np.float32((high - low) / 255)
    codes = np.arange(np.rint(low / scale), np.rint(low / scale) + 255, dtype=np.float32)
    x = (codes + np.float32(0.5)) * scale
    x = x[np.float32(0.5) == np.abs(x / scale - codes)]  # those that float32 can tell
    assert len(x) > 100
    found = FakeQuantize(low, high)(tf.constant(x)).numpy() / scale
    np.testing.assert_allclose(found, np.rint(x / scale), atol=1e-4)
    np.testing.assert_array_equal(np.rint(found) % 2, 0)


def test_rounded_kernel_is_on_the_grid_of_each_channel() -> None:
    kernel = np.random.default_rng(0).normal(size=(3, 3, 4, 5)).astype(np.float32)
    kernel *= np.array([1, 10, 0.1, 3, 7], np.float32)
    rounded = rounded_kernel(tf.constant(kernel), (0, 1, 2)).numpy()
    scales = np.abs(kernel).max(axis=(0, 1, 2)) / 127
    codes = rounded / scales
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-3)
    assert np.abs(rounded - kernel).max(axis=(0, 1, 2)) == pytest.approx(scales / 2, rel=0.2)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (L.Dense(3), (5,)),
        (L.Conv1D(3, 3), (8, 2)),
        (L.Conv2D(3, 3), (8, 8, 2)),
        (L.Conv2DTranspose(3, 3), (8, 8, 2)),
        (L.DepthwiseConv2D(3), (8, 8, 2)),
    ],
)
def test_with_quantized_kernel_trains_the_float_kernel(
    layer: keras.layers.Layer, shape: tuple[int, ...]
) -> None:
    quantizing = with_quantized_kernel(type(layer)).from_config(layer.get_config())  # type: ignore[attr-defined]
    x = np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)
    plain = layer(x)
    quantizing(x)
    quantizing.set_weights(layer.get_weights())

    @tf.function
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            y = quantizing(x)
            loss = tf.reduce_sum(y**2)
        return y, tape.gradient(loss, quantizing.trainable_variables)

    y, gradients = step()
    assert [v.shape for v in quantizing.weights] == [v.shape for v in layer.weights]
    for variable, kept in zip(quantizing.get_weights(), layer.get_weights(), strict=True):
        np.testing.assert_array_equal(variable, kept)
    assert 0 < np.abs(y - plain).max() < 0.05 * np.abs(plain).max()
    assert all(np.abs(g).max() > 0 for g in gradients)
