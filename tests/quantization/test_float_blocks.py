"""Masked softmaxes and layer normalisations in int8: they stay float, whoever quantizes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.data.arrays import ArrayExamples
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.float_blocks import coarse_blocks
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.mixed import mixed_artifact
from shrink.stages.quantize.schemes import SCHEMES, static_int8
from shrink.tflite.arena import predict_in_micro
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from shrink.tflite.weights import float_operators

ROWS, WIDTH = 6, 5
CAUSAL = np.tril(np.ones((ROWS, WIDTH), bool))
Scores: TypeAlias = tf.Tensor


def added_by_keras(scores: Scores) -> Scores:
    return keras.layers.Softmax()(scores, mask=tf.constant(CAUSAL[None]))


def added_by_hand(scores: Scores) -> Scores:
    return tf.nn.softmax(scores + np.where(CAUSAL, 0, -3e38).astype(np.float32))


def in_their_place(scores: Scores) -> Scores:
    return tf.nn.softmax(tf.where(CAUSAL[None], scores, -1e9))


def model_of(masked: Callable[[Scores], Scores]) -> keras.Model:
    scores = keras.Input((ROWS, WIDTH), name="scores")
    return keras.Model(scores, masked(keras.layers.Lambda(lambda x: 2 * x + 1)(scores)))


def scores_of(count: int = 80) -> np.ndarray:
    return np.random.default_rng(0).normal(scale=3, size=(count, ROWS, WIDTH)).astype(np.float32)


def calibrated_on(x: np.ndarray) -> CalibrationExamples:
    rows = ArrayExamples(x, np.zeros(len(x), np.int64), np.arange(len(x)))
    return CalibrationExamples(rows, 60, 0)


def int8(model: keras.Model, x: np.ndarray) -> tuple[bytes, tuple[str, ...]]:
    config = QuantizeConfig.model_validate({"scheme": "static_wi8_ai8", "input_type": "float32"})
    made = static_int8(FloatModel(model), calibrated_on(x), config)
    return made.content, made.notes


@pytest.mark.parametrize("masked", [added_by_keras, added_by_hand, in_their_place])
def test_a_masked_softmax_in_int8_is_the_float_one_to_two_steps(
    masked: Callable[[Scores], Scores],
) -> None:
    model, x = model_of(masked), scores_of()
    expected = model.predict(x, verbose=0)
    content, notes = int8(model, x)
    (found,) = load(content).predict({"scores": x})
    # A score is rounded by half a step of (bound to largest) / 255, which moves shares by as much.
    assert np.abs(found - expected).max() < 0.12
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.02
    assert found[:, ~CAUSAL].max() <= 1 / 256
    assert any("mask" in note for note in notes)


@pytest.mark.parametrize(
    ("layer", "operator"),
    [
        (keras.layers.Dense(WIDTH), "FULLY_CONNECTED"),
        (keras.layers.Conv2D(WIDTH, 3), "CONV_2D"),
        (keras.layers.DepthwiseConv2D(3), "DEPTHWISE_CONV_2D"),
        (keras.layers.Conv2DTranspose(WIDTH, 3), "TRANSPOSE_CONV"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mask_in_the_bias_of_a_layer_leaves_its_scores_as_they_are(
    layer: keras.layers.Layer, operator: str
) -> None:
    absent = np.array([0, 0, 1, 0, 1], bool)
    shape = (8,) if operator == "FULLY_CONNECTED" else (4, 4, 8)
    keras.utils.set_random_seed(0)
    rows = keras.Input(shape, name="rows")
    hidden = keras.layers.Dense(WIDTH, activation="relu")(rows)
    masked = layer(hidden) + np.where(absent, -1e9, 0).astype(np.float32)
    model = keras.Model(rows, keras.layers.Softmax()(masked))
    x = np.random.default_rng(0).normal(size=(80, *shape)).astype(np.float32)
    names = [o.name for o in read(FloatModel(model).float32.content)[0].operators]
    assert operator in names
    assert "ADD" not in names
    content, notes = int8(model, x)
    (found,) = load(content).predict({"rows": x})
    assert found[..., absent].max() == 0
    # Inputs and hidden values are rounded by up to 0.012, which moves a score by up to 0.1.
    expected = model.predict(x, verbose=0)
    assert np.abs(found - expected).max() < 0.05
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.01
    assert any("mask" in note for note in notes)


def test_a_softmax_without_a_mask_may_be_int8() -> None:
    model = model_of(lambda scores: tf.nn.softmax(scores + np.float32(-3)))
    found = coarse_blocks(FloatModel(model).float32.content, [{"scores": scores_of()}], 8)
    assert found == (frozenset(), [])


def encoder() -> keras.Model:
    keras.utils.set_random_seed(1)
    ids = keras.Input((8,), dtype="int32", name="ids")
    x = keras.layers.Embedding(30, 16, mask_zero=True)(ids)
    x = keras.layers.Add()([x, keras.layers.MultiHeadAttention(2, 8)(x, x)])
    x = keras.layers.LayerNormalization()(x)
    return keras.Model(ids, keras.layers.Dense(4)(keras.layers.GlobalAveragePooling1D()(x)))


def padded_texts() -> np.ndarray:
    random = np.random.default_rng(0)
    x = random.integers(1, 30, (80, 8)).astype(np.int32)
    x[np.arange(8) >= random.integers(2, 9, 80)[:, None]] = 0
    return x


def test_an_encoder_with_padded_texts_keeps_its_outputs() -> None:
    model, x = encoder(), padded_texts()
    expected = model.predict(x, verbose=0)
    (found,) = load(int8(model, x)[0]).predict({"ids": x})
    noise = np.sum((found - expected) ** 2) / np.sum(expected**2)
    assert 10 * np.log10(1 / noise) > 27


@pytest.mark.parametrize("masked", [added_by_keras, in_their_place])
def test_the_tflite_converter_keeps_masks_float_too(masked: Any) -> None:
    # ai-edge-quantizer knows no uint8, so that the converter has to do it.
    model, x = model_of(masked), scores_of()
    config = QuantizeConfig(scheme="static_wi8_ai8", input_type="uint8", output_type="uint8")
    made = static_int8(FloatModel(model), calibrated_on(x), config)
    (found,) = load(made.content).predict({"scores": x})
    difference = found - model.predict(x, verbose=0)
    assert np.abs(difference).max() < 0.12
    assert np.sqrt(np.mean(difference**2)) < 0.02
    assert found[:, ~CAUSAL].max() <= 1 / 255
    assert any("mask" in note for note in made.notes)


@pytest.mark.parametrize("masked", [added_by_hand, in_their_place])
@pytest.mark.parametrize("scheme", ["static_wi8_ai8", "static_wi8_ai16"])
def test_a_masked_softmax_has_the_output_type_that_the_recipe_names(
    masked: Callable[[Scores], Scores], scheme: str
) -> None:
    model, x = model_of(masked), scores_of()
    wide = "int8" if scheme == "static_wi8_ai8" else "int16"

    def types(**keys: Any) -> list[str]:
        config = QuantizeConfig.model_validate({"scheme": scheme, **keys})
        made = SCHEMES[scheme](FloatModel(model), calibrated_on(x), config)
        found = load(made.content).predict({"scores": x})[0] - model.predict(x, verbose=0)
        assert np.abs(found).max() < 0.12
        graph = read(made.content)[0]
        return [graph.tensors[i].dtype.lower() for i in (*graph.inputs, *graph.outputs)]

    assert types() == [wide, "float32"]
    assert types(output_type=wide) == [wide, wide]
    assert types(input_type="float32", output_type=wide) == ["float32", wide]


def test_mixed_precision_keeps_masks_float_too() -> None:
    model, x = encoder(), padded_texts()
    expected = model.predict(x, verbose=0)
    config = QuantizeConfig(
        scheme="mixed", activations="int8", input_type="float32", file_bytes=1_000_000
    )
    context: Any = SimpleNamespace(phase=lambda *shown: None)
    made, _ = mixed_artifact(FloatModel(model), calibrated_on(x), config, context)
    (found,) = load(made.content).predict({"ids": x})
    noise = np.sum((found - expected) ** 2) / np.sum(expected**2)
    assert 10 * np.log10(1 / noise) > 25
    assert any("mask" in note for note in made.notes)


EPSILON, CHANNELS = 1e-6, 24


def normalising() -> keras.Model:
    """Return a normalisation with its own scale and offset, and a dense layer behind it."""
    keras.utils.set_random_seed(0)
    x = keras.Input((6, CHANNELS), name="x")
    norm = keras.layers.LayerNormalization(epsilon=EPSILON, name="norm")
    model = keras.Model(x, keras.layers.Dense(8)(norm(x)))
    random = np.random.default_rng(1)
    norm.set_weights([random.uniform(0.5, 2, CHANNELS), random.normal(size=CHANNELS)])
    return model


def positions(count: int, least: float) -> np.ndarray:
    """Return positions (count, 6, channels), of which one in two has a deviation of `least`."""
    random = np.random.default_rng(count)
    x = random.normal(size=(count, 6, CHANNELS)) * np.where(np.arange(6) % 2, 1, least)[:, None]
    return x.astype(np.float32)


def by_definition(model: keras.Model, x: np.ndarray) -> np.ndarray:
    (gamma, beta), (kernel, bias) = (model.get_layer(index=i).get_weights() for i in (1, 2))
    x = x.astype(np.float64)
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + EPSILON)
    normal = (x - x.mean(axis=-1, keepdims=True)) / deviation * gamma + beta
    return np.asarray(normal @ kernel + bias)


def snr_db(wanted: np.ndarray, found: np.ndarray) -> float:
    return float(10 * np.log10(np.sum(wanted**2) / np.sum((found - wanted) ** 2)))


def test_a_normalisation_is_as_near_as_an_input_of_256_steps_lets_it_be() -> None:
    model, x = normalising(), positions(60, 0.1)
    wanted, step = by_definition(model, x), np.ptp(x) / 255
    best = snr_db(wanted, by_definition(model, step * np.rint(x / step)))
    made = static_int8(FloatModel(model), calibrated_on(x), QuantizeConfig())
    assert snr_db(wanted, load(made.content).predict({"x": x})[0]) > best - 2
    assert any("normalisation" in note for note in made.notes)


@pytest.mark.parametrize(
    ("least", "bits", "is_coarse"), [(1e-3, 8, True), (0.5, 8, False), (1e-3, 16, False)]
)
def test_a_normalisation_stays_float_where_variances_differ_much(
    least: float, bits: Literal[8, 16], is_coarse: bool
) -> None:
    x = positions(20, least)
    content = FloatModel(normalising()).float32.content
    names, notes = coarse_blocks(content, [{"x": x}], bits)
    assert (len(names) > 5, len(notes)) == ((True, 1) if is_coarse else (False, 0))
    if is_coarse:
        variances = x.astype(np.float64).var(axis=-1) + EPSILON
        assert f"{variances.max() / variances.min():,.0f}" in notes[0]


def test_a_normalisation_whose_ranges_were_trained_is_left_alone() -> None:
    model, x = normalising(), positions(60, 1e-3)
    inner, result = (f"{model.name}/norm/batchnorm/{name}" for name in ("Rsqrt", "add_1"))

    def stays_float(name: str) -> bool:
        source = FloatModel(model)
        source.ranges = {name: (-9.0, 1000.0)}
        made = static_int8(source, calibrated_on(x), QuantizeConfig())
        is_float = "RSQRT" in float_operators(made.content)
        assert is_float is any("normalisation" in note for note in made.notes)
        return is_float

    assert stays_float("serving_default_x:0")
    assert stays_float(result)  # what reads it has the trained range
    assert not stays_float(inner)


def test_a_masked_softmax_whose_scores_have_a_trained_range_is_left_alone() -> None:
    content = FloatModel(model_of(in_their_place)).float32.content
    graph, batches = read(content)[0], [{"scores": scores_of()}]
    scores, shares = (graph.tensors[o.outputs[0]].name for o in graph.operators[-2:])
    assert coarse_blocks(content, batches, 8, {shares})[0] == {scores, shares}
    assert coarse_blocks(content, batches, 8, {scores}) == (frozenset(), [])


def written_out(axes: tuple[int, int]) -> keras.Model:
    """Return the operators of a layer normalisation, its means over these axes."""
    x = keras.Input((CHANNELS, CHANNELS), batch_size=1, name="x")
    mean = tf.reduce_mean(x, axis=axes[0], keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, mean), axis=axes[1], keepdims=True)
    gamma, beta = np.random.default_rng(0).uniform(0.5, 2, (2, CHANNELS)).astype(np.float32)
    gain = tf.math.rsqrt(variance + EPSILON) * gamma
    return keras.Model(x, x * gain + (beta - mean * gain))


@pytest.mark.parametrize("axes", [(2, 2), (1, 1), (2, 1)])
def test_a_normalisation_over_any_axes_is_near_in_int8(axes: tuple[int, int]) -> None:
    sizes = np.where(np.arange(CHANNELS) % 2, 1, 0.1)  # small and large along both axes
    x = np.random.default_rng(0).normal(size=(60, CHANNELS, CHANNELS))
    x = (x * np.minimum.outer(sizes, sizes)).astype(np.float32)
    source = FloatModel(written_out(axes))
    made = static_int8(source, calibrated_on(x), QuantizeConfig())
    step = np.ptp(x) / 255
    exact, rounded = (
        load(source.float32.content).predict({"x": each})[0]
        for each in (x, step * np.rint(x / step))
    )
    found = load(made.content).predict({"x": x})[0]
    assert snr_db(exact, found) > snr_db(exact, rounded) - 2


def test_a_normalisation_whose_variance_others_read_is_near_in_int8() -> None:
    x = keras.Input((6, CHANNELS), name="x")
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    ones = np.ones(CHANNELS, np.float32)
    norm = tf.nn.batch_normalization(x, mean, variance, 0 * ones, ones, EPSILON)
    model, given = keras.Model(x, [norm, variance + EPSILON]), positions(60, 0.1)
    made = static_int8(FloatModel(model), calibrated_on(given), QuantizeConfig())
    step = np.ptp(given) / 255
    exact, variances = model.predict(given, verbose=0)
    rounded, _ = model.predict(step * np.rint(given / step), verbose=0)
    found, others = load(made.content).predict(given)
    assert snr_db(exact, found) > snr_db(exact, rounded) - 2
    assert np.abs(others - variances).max() < 0.02 * np.ptp(variances)


def test_float_blocks_run_in_tflite_micro() -> None:
    config = QuantizeConfig(target="tflm")
    x, y = scores_of(60), positions(60, 0.1)
    for model, given in ((model_of(added_by_hand), x), (normalising(), y)):
        made = static_int8(FloatModel(model), calibrated_on(given), config)
        assert made.notes
        (found,) = predict_in_micro(made.content, given[:20])
        (wanted,) = load(made.content).predict(given[:20])
        assert np.abs(found - wanted).max() <= 0.02 * np.ptp(wanted)
