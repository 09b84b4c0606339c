"""Exponentials between int8 operators: which stay float, and what that gains."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.quantization.float_islands import islands
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.dense_scales import with_best_scales
from shrink.stages.quantize.run import keep_float_for_micro, keep_islands_float
from shrink.tflite.arena import predict_in_micro
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from shrink.tflite.weights import float_operators
from tests.quantization.test_float_blocks import calibrated_on

L = keras.layers
INT8 = QuantizeConfig(scheme="static_wi8_ai8")


def depth(gain: float) -> keras.Model:
    """Return a softplus of numbers that reach from about -gain to gain."""
    keras.utils.set_random_seed(0)
    inputs = L.Input((6,), name="x")
    hidden = L.Dense(16, activation="relu")(inputs)
    scaled = L.Dense(4, kernel_initializer=keras.initializers.RandomNormal(stddev=gain / 3))
    return keras.Model(inputs, L.Activation("softplus")(scaled(hidden)))


def examples(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 6)).astype(np.float32)


def context() -> Any:
    warnings: list[str] = []
    return SimpleNamespace(warn=lambda code, *rest: warnings.append(code), warnings=warnings)


def test_softplus_of_a_wide_range_stays_float() -> None:
    model, x, other = depth(10.0), examples(150, 0), examples(200, 1)
    source, calibration, told = FloatModel(model), calibrated_on(x), context()
    logits = keras.Model(model.input, model.layers[-2].output)(other).numpy().astype(np.float64)
    wanted = np.logaddexp(0, logits)
    first, _ = with_best_scales(source, calibration, INT8)
    (note,) = keep_islands_float(source, first, calibration, INT8, told)
    second, _ = with_best_scales(source, calibration, INT8)
    assert "EXP, ADD, LOG" in note
    assert "become float32" in note
    assert float_operators(second.content) == ["EXP", "ADD", "LOG"]
    before, after = (
        float(np.mean(np.abs(load(each.content).predict({"x": other})[0] - wanted)))
        for each in (first, second)
    )
    assert before > 0.3
    assert after < 0.15
    assert told.warnings == []


def test_an_operator_that_costs_17_db_stays_float() -> None:
    source, calibration = FloatModel(depth(3.0)), calibrated_on(examples(150, 0))
    first, _ = with_best_scales(source, calibration, INT8)
    (note,) = keep_islands_float(source, first, calibration, INT8, context())
    assert "20.7 to 38.2 dB" in note


def test_noise_that_is_left_beside_float_operators_is_a_warning() -> None:
    keras.utils.set_random_seed(0)
    inputs = L.Input((6,), name="x")
    logarithm = tf.math.log(tf.maximum(tf.square(L.Dense(8)(inputs)), 1e-6))
    model = keras.Model(inputs, L.Dense(3)(logarithm))
    source, calibration, told = FloatModel(model), calibrated_on(examples(150, 0)), context()
    first, _ = with_best_scales(source, calibration, INT8)
    (note,) = keep_islands_float(source, first, calibration, INT8, told)
    assert "stays float" in note
    assert told.warnings == ["coarse-operators"]


def test_outputs_that_must_be_integers_stay_integers() -> None:
    model, x = depth(10.0), examples(150, 0)
    source, calibration = FloatModel(model), calibrated_on(x)
    config = QuantizeConfig(scheme="static_wi8_ai8", output_type="int8")
    first, _ = with_best_scales(source, calibration, config)
    assert keep_islands_float(source, first, calibration, config, context()) == ()
    assert source.floats == frozenset()


def test_what_int8_holds_stays_int8() -> None:
    model, x = depth(1.0), examples(150, 0)
    source, calibration = FloatModel(model), calibrated_on(x)
    first, _ = with_best_scales(source, calibration, INT8)
    assert keep_islands_float(source, first, calibration, INT8, context()) == ()
    assert source.floats == frozenset()


def test_operators_without_an_integer_kernel_stay_float_for_tflite_micro() -> None:
    keras.utils.set_random_seed(0)
    inputs = L.Input((6,), name="x")
    model = keras.Model(inputs, L.Dense(3)(tf.sqrt(tf.nn.relu(L.Dense(5)(inputs)))))
    x = examples(150, 0)
    source, calibration = FloatModel(model), calibrated_on(x)
    first, _ = with_best_scales(source, calibration, INT8)
    (note,) = keep_float_for_micro(source, first, {"x": x[:1]})
    assert "SQRT" in note
    second, _ = with_best_scales(source, calibration, INT8)
    assert keep_float_for_micro(source, second, {"x": x[:1]}) == ()
    (found,) = predict_in_micro(second.content, x)
    # Near 0 a root turns half an int8 step of what it reads into a tenth; elsewhere into little.
    assert np.sqrt(np.mean((found - model.predict(x, verbose=0)) ** 2)) < 0.02


def test_an_operator_that_tflite_micro_lacks_is_named_with_its_layer() -> None:
    keras.utils.set_random_seed(0)
    inputs = L.Input((6,), name="x")
    model = keras.Model(inputs, L.Dense(3)(L.Dense(5, activation="gelu", name="wide")(inputs)))
    x = examples(150, 0)
    source = FloatModel(model)
    made, _ = with_best_scales(source, calibrated_on(x), INT8)
    while keep_float_for_micro(source, made, {"x": x[:1]}):
        made, _ = with_best_scales(source, calibrated_on(x), INT8)
    with pytest.raises(StageError, match="GELU") as caught:
        predict_in_micro(made.content, x[:1])
    assert "wide" in str(caught.value.subject)


def test_an_island_is_what_stands_beside_a_nonlinear_operator_on_one_activation() -> None:
    inputs = L.Input((6,), name="x")
    dense = L.Dense(5, name="dense")(inputs)
    power = tf.exp(-dense) + 1.0
    model = keras.Model(inputs, L.Dense(3)(dense / power))
    (island,) = islands(read(FloatModel(model).float32.content)[0])
    assert island.kinds == ("NEG", "EXP", "ADD", "DIV")
    assert len(island.inputs) == 1
    assert "dense" in island.inputs[0]
