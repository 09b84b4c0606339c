"""Inputs of columns that differ in size: what stays float, and what int8 loses then."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.data.arrays import ArrayExamples
from shrink.quantization.aware_model import aware_model
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.float_front import coarse_inputs
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.mixed import mixed_artifact
from shrink.stages.quantize.run import with_float_front
from shrink.stages.quantize.schemes import SCHEMES
from shrink.tflite.interpreter import load
from shrink.tflite.weights import float_operators

L = keras.layers
MEANS, DEVIATIONS = np.array([101_325, 22, 0.5, 2e5]), np.array([600, 7, 0.3, 1e5])
COUNT = 200


def unit() -> np.ndarray:
    return np.random.default_rng(0).uniform(-1.7, 1.7, (COUNT, 4))


def readings(values: np.ndarray) -> np.ndarray:
    return (values * DEVIATIONS + MEANS).astype(np.float32)


def normalization() -> keras.layers.Layer:
    return L.Normalization(mean=MEANS.tolist(), variance=(DEVIATIONS**2).tolist())


def rescaling() -> keras.layers.Layer:
    return L.Rescaling((1 / DEVIATIONS).tolist(), (-MEANS / DEVIATIONS).tolist())


def batch_norm() -> keras.layers.Layer:
    constant = keras.initializers.Constant
    return L.BatchNormalization(
        moving_mean_initializer=constant(MEANS), moving_variance_initializer=constant(DEVIATIONS**2)
    )


def behind(x: Any) -> Any:
    return L.Dense(3)(L.Dense(16, activation="tanh")(x))


def table(front: keras.layers.Layer) -> keras.Model:
    keras.utils.set_random_seed(1)
    inputs = L.Input((4,), name="readings")
    return keras.Model(inputs, behind(front(inputs)))


def separate() -> keras.Model:
    keras.utils.set_random_seed(1)
    inputs = [L.Input((1,), name=f"sensor_{k}") for k in range(4)]
    return keras.Model(inputs, behind(normalization()(L.Concatenate()(inputs))))


def series(kind: str) -> keras.Model:
    keras.utils.set_random_seed(1)
    inputs = L.Input((10, 4), name="readings")
    x = normalization()(inputs)
    x = L.LSTM(6)(x) if kind == "lstm" else L.GlobalAveragePooling1D()(L.Conv1D(8, 3)(x))
    return keras.Model(inputs, L.Dense(3)(x))


def fed(model: keras.Model) -> dict[str, np.ndarray]:
    if len(model.inputs) > 1:
        return {f"sensor_{k}": readings(unit())[:, k : k + 1] for k in range(4)}
    if len(model.input_shape) == 3:
        many = np.random.default_rng(0).uniform(-1.7, 1.7, (COUNT, 10, 4))
        return {"readings": readings(many)}
    return {"readings": readings(unit())}


def calibrated(arrays: dict[str, np.ndarray]) -> CalibrationExamples:
    parts = tuple(arrays.values())
    x: Any = parts if len(parts) > 1 else parts[0]
    rows = ArrayExamples(x, np.zeros(COUNT, np.int64), np.arange(COUNT))
    return CalibrationExamples(rows, COUNT, 0, tuple(arrays))


def context() -> Any:
    warnings: list[tuple[str, str, str]] = []
    return SimpleNamespace(
        warn=lambda *said: warnings.append(said), warnings=warnings, phase=lambda *shown: None
    )


def snr_db(wanted: np.ndarray, found: np.ndarray) -> float:
    return float(10 * np.log10(np.var(wanted, axis=0).sum() / np.mean((wanted - found) ** 2) / 3))


MODELS: dict[str, Callable[[], keras.Model]] = {
    "normalization": lambda: table(normalization()),
    "batch norm": lambda: table(batch_norm()),
    "rescaling": lambda: table(rescaling()),
    "separate inputs": separate,
    "convolution": lambda: series("convolution"),
    "lstm": lambda: series("lstm"),  # which the TFLite converter quantizes
}
CASES = [
    *((name, "static_wi8_ai8") for name in MODELS),
    *((name, "static_wi8_ai16") for name in ("normalization", "convolution")),
]


@pytest.mark.parametrize(("name", "scheme"), CASES)
def test_the_layers_that_scale_the_inputs_stay_float(name: str, scheme: str) -> None:
    model = MODELS[name]()
    arrays, config = fed(model), QuantizeConfig.model_validate({"scheme": scheme})
    source, calibration, told = FloatModel(model), calibrated(arrays), context()
    wanted = np.asarray(model.predict(list(arrays.values()), verbose=0))
    before = SCHEMES[scheme](source, calibration, config).content
    config, notes = with_float_front(config, source, told, calibration)
    after = SCHEMES[scheme](source, calibration, config).content
    assert (config.artifact_input_type, told.warnings, len(notes)) == ("float32", [], 1)
    assert "stays float32" in notes[0]
    assert {*float_operators(after)} <= {"SUB", "MUL", "ADD", "CONCATENATION"}
    assert all(detail.dtype == np.float32 for detail in load(after).input_details)
    assert snr_db(wanted, load(before).predict(arrays)[0]) < 20
    assert snr_db(wanted, load(after).predict(arrays)[0]) > 30


def test_mixed_precision_keeps_them_float_too() -> None:
    model = series("convolution")
    arrays, source = fed(model), FloatModel(model)
    config = QuantizeConfig(scheme="mixed", file_bytes=1_000_000)
    config, _ = with_float_front(config, source, context(), calibrated(arrays))
    made, _ = mixed_artifact(source, calibrated(arrays), config, context())
    wanted = np.asarray(model.predict(list(arrays.values()), verbose=0))
    assert snr_db(wanted, load(made.content).predict(arrays)[0]) > 28


def test_an_input_of_integers_that_is_asked_for_is_kept_with_a_warning() -> None:
    model, told = table(normalization()), context()
    config = QuantizeConfig.model_validate({"scheme": "static_wi8_ai8", "input_type": "int8"})
    source = FloatModel(model)
    assert with_float_front(config, source, told, calibrated(fed(model))) == (config, [])
    ((code, message, hint),) = told.warnings
    assert code == "mixed-ranges"
    assert "'readings'" in message
    assert "at most 2 values for columns 0 to 2" in message
    assert "input_type" in hint
    assert not source.floats


def raw(kind: str) -> keras.Model:
    """Return a model whose first kernels read raw columns, as training may leave them."""
    keras.utils.set_random_seed(1)
    steps = (6, 4) if kind != "dense" else (4,)
    inputs = L.Input(steps, name="readings")
    first: dict[str, Callable[[], keras.layers.Layer]] = {
        "dense": lambda: L.Dense(16, activation="tanh", bias_initializer="ones"),
        "flat": lambda: L.Dense(16, activation="tanh", bias_initializer="ones"),
        "valid": lambda: L.Conv1D(16, 3, activation="tanh", bias_initializer="ones"),
        "padded": lambda: L.Conv1D(16, 3, padding="same", activation="tanh"),
        "depthwise": lambda: L.DepthwiseConv1D(3, activation="tanh"),
    }
    layer = first[kind]()
    x = layer(L.Flatten()(inputs) if kind == "flat" else inputs)
    kernel, bias = layer.get_weights()
    if kind == "depthwise":
        kernel = kernel / DEVIATIONS[:, None]
    elif kind == "flat":
        kernel = kernel / np.tile(DEVIATIONS, 6)[:, None]
        bias = bias - np.tile(MEANS, 6) @ kernel
    else:
        kernel = kernel / DEVIATIONS[:, None]
        bias = bias - (kernel * MEANS[:, None]).sum(axis=tuple(range(kernel.ndim - 1)))
    layer.set_weights([kernel, bias])
    return keras.Model(inputs, L.Dense(3)(L.Flatten()(x)))


def steps_of(model: keras.Model) -> dict[str, np.ndarray]:
    shape = (COUNT, *model.input_shape[1:])
    return {"readings": readings(np.random.default_rng(0).uniform(-1.7, 1.7, shape))}


@pytest.mark.parametrize("scheme", ["static_wi8_ai8", "static_wi8_ai16"])
@pytest.mark.parametrize("kind", ["dense", "flat", "valid"])
def test_first_kernels_that_read_raw_columns_stay_float(kind: str, scheme: str) -> None:
    model = raw(kind)
    arrays, told = steps_of(model), context()
    source, calibration = FloatModel(model), calibrated(arrays)
    wanted = np.asarray(model.predict(arrays["readings"], verbose=0))
    config, notes = with_float_front(
        QuantizeConfig.model_validate({"scheme": scheme}), source, told, calibration
    )
    assert (config.artifact_input_type, told.warnings, len(notes)) == ("float32", [], 1)
    content = SCHEMES[scheme](source, calibration, config).content
    kernels = {"dense": "FULLY_CONNECTED", "flat": "FULLY_CONNECTED"}
    kernel = "DEPTHWISE_CONV_2D" if kind == "depthwise" else kernels.get(kind, "CONV_2D")
    assert [one for one in float_operators(content) if one in (*kernels.values(), kernel)] == [
        kernel
    ]
    assert snr_db(wanted, load(content).predict(arrays)[0]) > 28


@pytest.mark.parametrize("kind", ["padded", "depthwise"])
def test_other_first_kernels_stay_float_too(kind: str) -> None:
    model = raw(kind)
    arrays = steps_of(model)
    source, calibration = FloatModel(model), calibrated(arrays)
    wanted = np.asarray(model.predict(arrays["readings"], verbose=0))
    config = QuantizeConfig(scheme="static_wi8_ai16")
    before = SCHEMES["static_wi8_ai16"](source, calibration, config).content
    config, _ = with_float_front(config, source, context(), calibration)
    after = SCHEMES["static_wi8_ai16"](source, calibration, config).content
    errors = [snr_db(wanted, load(made).predict(arrays)[0]) for made in (before, after)]
    assert errors[1] > errors[0] + 10


def test_columns_that_no_kernel_reads_first_get_a_warning_with_a_way_out() -> None:
    inputs = L.Input((4,), name="readings")
    x = L.Dense(16, activation="tanh")(normalization()(L.Lambda(keras.backend.relu)(inputs)))
    model, told = keras.Model(inputs, L.Dense(3)(x)), context()
    config, calibration = QuantizeConfig(scheme="static_wi8_ai8"), calibrated(fed(model))
    assert with_float_front(config, FloatModel(model), told, calibration) == (config, [])
    ((code, message, hint),) = told.warnings
    assert code == "mixed-ranges"
    assert "'readings'" in message
    assert "Normalization" in hint


def test_columns_of_one_size_stay_integers() -> None:
    model = table(L.Rescaling(0.5, 1.0))
    content = FloatModel(model).float32.content
    assert coarse_inputs(content, [{"readings": unit().astype(np.float32)}], 8) == []


def test_pictures_stay_integers_though_rounding_them_shows() -> None:
    random = np.random.default_rng(0)
    shades = random.uniform(0, 1, (COUNT, 1, 1, 1)) + random.normal(0, 0.012, (COUNT, 8, 8, 1))
    pictures = np.clip(shades, 0, 1).astype(np.float32)
    inputs = L.Input((8, 8, 1), name="picture")
    edges = L.Conv2D(1, (1, 2), use_bias=False, kernel_initializer="zeros")
    model = keras.Model(inputs, edges(inputs))
    edges.set_weights([np.array([-1.0, 1.0], np.float32).reshape(1, 2, 1, 1)])
    rounded = np.rint(pictures * 255) / 255
    exact, found = np.diff(pictures, axis=2), np.diff(rounded, axis=2)
    signal = np.mean((exact - exact.mean(0)) ** 2)
    assert 15 < 10 * np.log10(signal / np.mean((exact - found) ** 2)) < 25
    content = FloatModel(model).float32.content
    assert coarse_inputs(content, [{"picture": pictures}], 8) == []
    still = np.full_like(pictures, 0.5)
    assert coarse_inputs(content, [{"picture": still}], 8) == []


def test_training_for_int8_does_not_round_inputs_that_stay_float() -> None:
    model = table(normalization())
    x = readings(unit())
    batches = [{"readings": x}]
    wanted = np.asarray(model.predict(x, verbose=0))
    errors = [
        snr_db(wanted, np.asarray(aware_model(model, batches, float_inputs=kept).aware(x)))
        for kept in (False, True)
    ]
    assert errors[0] < 10
    assert errors[1] > 30
