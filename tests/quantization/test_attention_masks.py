"""Masked softmaxes in int8: where the bound lies, and what is left of the attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.data.arrays import ArrayExamples
from shrink.quantization.attention_masks import bounded_masks
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import static_int8
from shrink.tflite.interpreter import load

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


@pytest.mark.parametrize("masked", [added_by_hand, in_their_place])
def test_the_bound_lies_below_the_lowest_of_the_rows_largest_scores(
    masked: Callable[[Scores], Scores],
) -> None:
    model, x = model_of(masked), scores_of()
    bounded = bounded_masks(FloatModel(model).float32.content, [{"scores": x}])
    assert bounded is not None
    real = 2 * x.astype(np.float64) + 1
    tops = np.where(CAUSAL, real, -np.inf).max(axis=-1)
    (bound,) = bounded.layers.values()
    assert bound == pytest.approx(tops.min() - 6 - np.log(WIDTH), rel=1e-6)
    (name,) = bounded.layers
    assert bounded.ranges[name] == pytest.approx((bound, real[:, CAUSAL].max()), rel=1e-6)
    # In float it still is the softmax of the others, but for exp(-6) of a row.
    (found,) = load(bounded.content).predict({"scores": x})
    assert np.abs(found - model.predict(x, verbose=0)).max() < np.exp(-6)


def test_bounded_masks_leaves_a_softmax_without_a_mask_alone() -> None:
    model = model_of(lambda scores: tf.nn.softmax(scores + np.float32(-3)))
    assert bounded_masks(FloatModel(model).float32.content, [{"scores": scores_of()}]) is None


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
