"""Layer normalisations in two steps: the same in float, and nearer to it in int8."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.quantization.layer_norm import normalised_twice
from shrink.quantization.source import FloatModel
from shrink.stages.quantize import preparation as rewriting
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import static_int8
from shrink.tflite.interpreter import load
from tests.quantization.test_attention_masks import calibrated_on

L = keras.layers
EPSILON, WIDTH = 1e-6, 24


@functools.cache
def float_model() -> FloatModel:
    """Return a normalisation with its own scale and offset, and a dense layer behind it."""
    keras.utils.set_random_seed(0)
    x = L.Input((6, WIDTH), name="x")
    norm = L.LayerNormalization(epsilon=EPSILON, name="norm")
    model = keras.Model(x, L.Dense(8)(norm(x)))
    random = np.random.default_rng(1)
    norm.set_weights([random.uniform(0.5, 2, WIDTH), random.normal(size=WIDTH)])
    return FloatModel(model)


def positions(count: int, least: float) -> np.ndarray:
    """Return positions (count, 6, channels), of which one in two has a deviation of `least`."""
    random = np.random.default_rng(count)
    x = random.normal(size=(count, 6, WIDTH)) * np.where(np.arange(6) % 2, 1, least)[:, None]
    return x.astype(np.float32)


def by_definition(x: np.ndarray) -> np.ndarray:
    norm, dense = (float_model().model.get_layer(index=i) for i in (1, 2))  # type: ignore[union-attr]
    (gamma, beta), (kernel, bias) = norm.get_weights(), dense.get_weights()
    x = x.astype(np.float64)
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + EPSILON)
    normal = (x - x.mean(axis=-1, keepdims=True)) / deviation * gamma + beta
    return np.asarray(normal @ kernel + bias)


@pytest.mark.parametrize("least", [0.1, 1e-3, 0.0])
def test_two_steps_are_the_layer_normalisation_in_float(least: float) -> None:
    x = positions(20, least)
    found = normalised_twice(float_model().float32.content, [{"x": x}])
    assert found is not None
    (ratio,) = found.layers.values()
    variances = x.astype(np.float64).var(axis=-1) + EPSILON
    assert ratio == pytest.approx(variances.max() / variances.min(), rel=1e-4)
    (outputs,) = load(found.content).predict({"x": x})
    np.testing.assert_allclose(outputs, by_definition(x), atol=2e-5)


def test_positions_of_one_size_are_left_alone() -> None:
    assert normalised_twice(float_model().float32.content, [{"x": positions(20, 0.5)}]) is None


def written_out(axes: tuple[int, int]) -> bytes:
    """A float file of the operators of a layer normalisation, its means over these axes."""
    x = L.Input((WIDTH, WIDTH), batch_size=1, name="x")
    mean = tf.reduce_mean(x, axis=axes[0], keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, mean), axis=axes[1], keepdims=True)
    random = np.random.default_rng(0)
    gamma, beta = random.uniform(0.5, 2, (2, WIDTH)).astype(np.float32)
    gain = tf.math.rsqrt(variance + EPSILON) * gamma
    return FloatModel(keras.Model(x, x * gain + (beta - mean * gain))).float32.content


@pytest.mark.parametrize(("axes", "is_one"), [((2, 2), True), ((1, 1), False), ((2, 1), False)])
def test_only_means_over_the_last_axis_are_a_layer_normalisation(
    axes: tuple[int, int], is_one: bool
) -> None:
    sizes = np.where(np.arange(WIDTH) % 2, 1, 1e-3)  # small and large along both axes
    x = np.random.default_rng(0).normal(size=(1, WIDTH, WIDTH)) * np.minimum.outer(sizes, sizes)
    given, content = {"x": x.astype(np.float32)}, written_out(axes)
    found = normalised_twice(content, [given])
    assert (found is not None) is is_one
    if found is not None:
        outputs, wanted = (load(one).predict(given)[0] for one in (found.content, content))
        np.testing.assert_allclose(outputs, wanted, atol=2e-5)


def test_a_normalisation_whose_variance_others_read_is_left_alone() -> None:
    x = L.Input((6, WIDTH), name="x")
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    ones = np.ones(WIDTH, np.float32)
    norm = tf.nn.batch_normalization(x, mean, variance, 0 * ones, ones, EPSILON)
    content = FloatModel(keras.Model(x, [norm, tf.math.log(variance + EPSILON)])).float32.content
    assert normalised_twice(content, [{"x": positions(20, 1e-3)}]) is None


def test_a_normalisation_whose_ranges_were_trained_is_left_alone() -> None:
    content, batches = float_model().float32.content, [{"x": positions(20, 1e-3)}]
    model = float_model().model
    assert model is not None
    inner = f"{model.name}/norm/batchnorm/Rsqrt"
    assert normalised_twice(content, batches, {"another": (0.0, 1.0)}) is not None
    assert normalised_twice(content, batches, {inner: (0.0, 1.0)}) is None


def snr_db(wanted: np.ndarray, found: np.ndarray) -> float:
    return float(10 * np.log10(np.sum(wanted**2) / np.sum((found - wanted) ** 2)))


def test_int8_is_as_near_as_an_input_of_256_steps_lets_it_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = positions(60, 0.1)
    wanted, step = by_definition(x), np.ptp(x) / 255
    best = snr_db(wanted, by_definition(step * np.rint(x / step)))

    def int8() -> float:
        made = static_int8(float_model(), calibrated_on(x), QuantizeConfig())
        return snr_db(wanted, load(made.content).predict({"x": x})[0])

    assert int8() > best - 2
    monkeypatch.setattr(rewriting, "normalised_twice", lambda *_: None)
    assert int8() < best - 4
