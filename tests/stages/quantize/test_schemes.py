from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.quantization.aware_model import aware_model
from shrink.quantization.calibration import Batches, CalibrationExamples, Ranges, extreme_ranges
from shrink.quantization.source import FloatModel
from shrink.stages.quantize import schemes as static
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.mixed import mixed_artifact
from shrink.stages.quantize.run import truncated_inputs, with_exact_inputs, with_float_front
from shrink.stages.quantize.schemes import SCHEMES
from shrink.tflite.convert import Conversion
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from tests.quantization.test_aware_model import residual
from tests.stages.quantize.toys import images
from tests.unlabelled import UnlabelledExamples

L = keras.layers


def conversion_of(source: FloatModel) -> Conversion:
    rows: Any = UnlabelledExamples(images(60))
    return static.static_int8(source, CalibrationExamples(rows, 60, 0), QuantizeConfig())


def quantized(source: FloatModel) -> bytes:
    return conversion_of(source).content


def assert_near(content: bytes, source: FloatModel) -> None:
    x = images(20, seed=2)
    wanted = load(source.float32.content).predict(x)[0]
    difference = load(content).predict(x)[0] - wanted
    assert np.abs(difference).max() < 0.06 * np.abs(wanted).max()


def far_too_narrow(content: bytes, batches: Batches) -> Ranges:
    return {n: (a / 50, b / 50) for n, (a, b) in extreme_ranges(content, batches).items()}


def test_static_int8_takes_the_converter_where_the_quantizer_gives_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(static, "least_squares_ranges", far_too_narrow)
    source = FloatModel(residual(prelu=False))
    assert_near(quantized(source), source)


def test_static_int8_reports_that_the_converter_failed_where_the_quantizer_gives_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def aborts(*_: object) -> None:
        raise StageError("LiteRT cannot run it: killed by SIGABRT")

    monkeypatch.setattr(static, "least_squares_ranges", far_too_narrow)
    monkeypatch.setattr(static, "check_runs", aborts)
    (note,) = [n for n in conversion_of(FloatModel(residual(prelu=False))).notes if "SIGABRT" in n]
    assert note.startswith("outputs are far from those of the float model")


def with_outliers(network: keras.Model) -> keras.Model:
    """Give kernels a few large values, so that rounding moves means."""
    random = np.random.default_rng(0)
    for weight in network.trainable_weights:
        if len(weight.shape) > 1:
            values = weight.numpy()
            values.reshape(-1)[random.integers(0, values.size, values.shape[-1])] *= 8
            weight.assign(values)
    return network


def gated() -> keras.Model:
    """Functions that are operators of their own, and operators that share a scale."""
    keras.utils.set_random_seed(0)
    inputs = L.Input((8, 8, 3), name="picture")
    x = L.Conv2D(8, 3, padding="same", activation="relu", name="first")(inputs)
    gate = L.Conv2D(8, 1, activation="sigmoid", name="gate")(
        L.GlobalAveragePooling2D(keepdims=True, name="squeezed")(x)
    )
    x = L.Multiply(name="gated")([x, gate])
    x = L.Conv2D(8, 1, activation="tanh", name="second")(x)
    left = L.Conv2D(4, 3, padding="same", name="left")(x)
    right = L.Conv2D(4, 3, padding="same", activation="relu", name="right")(x)
    x = L.Concatenate(name="both")([left, right])
    x = L.Conv2D(8, 3, activation="gelu", name="third")(L.UpSampling2D(name="larger")(x))
    x = L.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(inputs, L.Dense(4, activation="softmax", name="classes")(x))


def of_the_converter() -> keras.Model:
    """Operators that ai-edge-quantizer leaves in float, and a rescaling that a kernel takes in."""
    keras.utils.set_random_seed(0)
    inputs = L.Input((8, 8, 3), name="picture")
    x = L.Rescaling(0.5, name="rescaled")(inputs)
    x = L.Conv2D(8, 3, padding="same", activation="elu", name="first")(x)
    x = L.Conv2D(8, 3, activation="relu", name="second")(x)
    return keras.Model(inputs, L.Dense(4, name="logits")(L.GlobalMaxPooling2D(name="pool")(x)))


@pytest.mark.parametrize("build", [lambda: residual(prelu=False), gated, of_the_converter])
def test_static_int8_after_aware_training_computes_what_was_trained(
    build: Callable[[], keras.Model],
) -> None:
    """The simulated forward pass is the reference: codes of the outputs, one by one."""
    rows: Any = UnlabelledExamples(images(100))
    calibration = CalibrationExamples(rows, 100, 0)
    model = aware_model(with_outliers(build()), calibration.batches())
    random = np.random.default_rng(1)
    for weight in model.aware.trainable_weights:  # as training moves them
        weight.assign(weight * random.uniform(0.9, 1.1, weight.shape))
    x = images(100, seed=3)
    simulated = model.aware(x).numpy()

    def share_of_equal_codes(source: FloatModel, **keys: Any) -> float:
        content = static.static_int8(source, calibration, QuantizeConfig(**keys)).content
        runner = load(content)
        scale, zero = runner.output_details[0].scale, runner.output_details[0].zero_point
        found, wanted = (
            np.clip(np.rint(values / scale) + zero, -128, 127)
            for values in (runner.predict(x)[0], simulated)
        )
        return float(np.mean(found == wanted))

    source = model.source(calibration.batches())
    assert share_of_equal_codes(source, aware=True, epochs=1) > 0.97
    # Without ranges as they were trained, and biases, else the test would show nothing.
    again = FloatModel(model.trained())
    assert share_of_equal_codes(again, aware=True, epochs=1) < 0.9
    assert share_of_equal_codes(again) < 0.9


L = keras.layers
ROWS = 600


def embedded(dtype: str) -> FloatModel:
    keras.utils.set_random_seed(0)
    inputs = L.Input((6,), dtype=dtype, name="words")
    x = L.Flatten()(L.Embedding(ROWS, 8)(inputs))
    return FloatModel(keras.Model(inputs, L.Dense(3)(x)))


def artifact(source: FloatModel, config: QuantizeConfig, x: np.ndarray) -> bytes:
    calibration = CalibrationExamples(UnlabelledExamples(x), 100, 0)
    if config.scheme != "mixed":
        return SCHEMES[config.scheme](source, calibration, config).content
    context: Any = SimpleNamespace(phase=lambda *shown: None)
    return mixed_artifact(source, calibration, config, context)[0].content


@pytest.mark.parametrize(
    ("scheme", "dtype"),
    [
        ("static_wi8_ai8", "float32"),
        pytest.param("static_wi8_ai8", "int32", marks=pytest.mark.slow),
        pytest.param("static_wi8_ai16", "int32", marks=pytest.mark.slow),
        pytest.param("mixed", "float32", marks=pytest.mark.slow),
        pytest.param("mixed", "int32", marks=pytest.mark.slow),
    ],
)
def test_an_integer_embedding_looks_up_the_rows_that_it_is_asked_for(
    scheme: Any, dtype: str
) -> None:
    source = embedded(dtype)
    x = np.random.default_rng(0).integers(0, ROWS, (100, 6)).astype(dtype)
    budget = 1_000_000 if scheme == "mixed" else None
    config, notes = with_exact_inputs(QuantizeConfig(scheme=scheme, file_bytes=budget), source)
    runner = load(artifact(source, config, x))
    # Another row has nothing in common with the right one: the table is random.
    table, kernel, bias = source.model.get_weights()  # type: ignore[union-attr]
    wanted = table[x.astype(int)].reshape(100, -1) @ kernel + bias
    difference = runner.predict(x.astype("float32"))[0] - wanted
    assert np.abs(difference).max() < 0.05 * np.abs(wanted).max()
    assert [detail.dtype for detail in runner.input_details] == [dtype]
    assert config.output_type is None
    assert [note for note in notes if "float32: words holds" in note] or dtype == "int32"


@pytest.mark.slow
def test_an_embedding_of_floats_has_no_form_with_16_bit_activations() -> None:
    source = embedded("float32")
    x = np.zeros((4, 6), np.float32)
    config, _ = with_exact_inputs(QuantizeConfig(scheme="static_wi8_ai16"), source)
    with pytest.raises(StageError, match="CAST has no version with 16-bit activations"):
        artifact(source, config, x)


def test_rounding_numbers_that_are_looked_up_is_no_warning() -> None:
    x = np.random.default_rng(0).integers(0, ROWS, (100, 6)).astype("float32")
    calibration = CalibrationExamples(UnlabelledExamples(x), 100, 0)
    warned: list[str] = []
    context: Any = SimpleNamespace(warn=lambda *words: warned.extend(words))
    with_float_front(QuantizeConfig(), embedded("float32"), context, calibration)
    assert warned == []


def test_a_type_that_changes_indices_is_refused() -> None:
    with pytest.raises(StageError, match="would change the whole numbers"):
        with_exact_inputs(QuantizeConfig(input_type="int8"), embedded("float32"))


def test_inputs_that_are_integers_or_are_not_looked_up_with_keep_their_type() -> None:
    inputs = L.Input((6,))
    dense = FloatModel(keras.Model(inputs, L.Dense(3)(inputs)))
    for source in (embedded("int32"), dense):
        config = QuantizeConfig()
        assert with_exact_inputs(config, source) == (config, ())
        assert truncated_inputs(read(source.float32.content)[0]) == []


def test_float16_keeps_the_statistics_of_a_normalization() -> None:
    mean, deviation = (
        np.array([101_300.0, 50_010.0, 1e-4], np.float32),
        np.array([200.0, 3.0, 1e-5]),
    )
    inputs = L.Input((3,))
    normalized = L.Normalization(mean=mean, variance=deviation**2)(inputs)
    model = keras.Model(inputs, L.Dense(4, name="scores")(normalized))
    x = (mean + deviation * np.random.default_rng(0).normal(size=(50, 3))).astype(np.float32)
    made = SCHEMES["float16"](FloatModel(model), None, QuantizeConfig(scheme="float16"))  # type: ignore[arg-type]
    kernel, bias = model.get_layer("scores").get_weights()
    wanted = ((x.astype(np.float64) - mean) / deviation) @ kernel + bias
    np.testing.assert_allclose(load(made.content).predict(x)[0], wanted, atol=0.01)
    assert {t.dtype for t in read(made.content)[0].tensors if t.shape == (4, 3)} >= {"FLOAT16"}
    assert any("too coarse: 2" in note for note in made.notes)


def test_the_converter_calibrates_on_all_examples_beside_a_masked_softmax() -> None:
    keras.utils.set_random_seed(0)
    inputs = L.Input((6, 5), name="x")
    score = L.Dense(5, name="score")(inputs)
    mask = np.where(np.tril(np.ones((6, 5), bool)), 0, -1e9).astype(np.float32)
    head = L.Dense(3, name="head")(L.ReLU()(L.Dense(4)(inputs)))
    model = keras.Model(inputs, [head, L.Softmax(name="masked")(score + mask)])
    x = np.random.default_rng(0).normal(size=(400, 6, 5)).astype(np.float32)
    calibration = CalibrationExamples(UnlabelledExamples(x), 400, 0)
    of_blocks = next(iter(calibration.batches(100)))
    rare = np.setdiff1d(np.arange(400), calibration.indices[::4])
    x[rare] *= 5
    assert np.ptp(of_blocks["x"]) < 0.5 * np.ptp(x)
    config = QuantizeConfig(input_type="uint8", output_type="uint8")  # for the converter alone
    runner = load(static.static_int8(FloatModel(model), calibration, config).content)
    for found, wanted in zip(runner.predict(x), model.predict(x, verbose=0), strict=True):
        assert np.abs(found - wanted).max() < 0.1 * np.ptp(wanted)
