from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter
from tensorflow.lite.python import lite

from shrink.base.errors import ModelError, StageError
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import static_int8
from shrink.tflite import convert
from shrink.tflite.convert import explain
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from tests.tflite.toys import batch, samples, small_cnn, to_float32, two_by_two
from tests.unlabelled import UnlabelledExamples

L = keras.layers


def run(content: bytes, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    interpreter = Interpreter(model_content=content)
    interpreter.allocate_tensors()
    return interpreter.get_signature_runner()(**feeds)


def dense_after(function: object) -> keras.Model:
    inputs = L.Input((4,), name="x")
    x = L.Lambda(function, name="odd")(L.Dense(4, name="before")(inputs))
    return keras.Model(inputs, L.Dense(2, name="after")(x))


def test_to_float32_gives_the_keras_outputs_by_name_when_inputs_are_reordered() -> None:
    model = two_by_two()
    wide, narrow = batch(model, 1)
    outputs = run(to_float32(model), {"zebra": wide, "ant": narrow})
    classes, value = model([wide, narrow])
    np.testing.assert_allclose(outputs["classes"], classes, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["value"], value, rtol=1e-5, atol=1e-6)


def test_to_float32_has_static_shapes_with_batch_1() -> None:
    interpreter = Interpreter(model_content=to_float32(small_cnn()))
    for detail in interpreter.get_tensor_details():
        assert (detail["shape_signature"] > 0).all()
    assert interpreter.get_input_details()[0]["shape"].tolist() == [1, 8, 8, 1]


def test_to_float32_equals_the_model_when_given_its_saved_model(tmp_path: Path) -> None:
    model = small_cnn()
    tf.saved_model.save(model, str(tmp_path / "saved"))
    (x,) = batch(model, 1)
    outputs = run(to_float32(tmp_path / "saved"), {"picture": x})
    np.testing.assert_allclose(outputs["output_0"], model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "dtype", "tolerance"),
    [("static_int8", "int8", 0.05), ("static_int16", "int16", 0.02)],
)
def test_static_schemes_stay_near_the_float_outputs(
    precision: convert.Precision, dtype: str, tolerance: float
) -> None:
    model = two_by_two()
    feed = dict(zip(("zebra", "ant"), batch(model, 1), strict=True))
    content = convert.convert(model, precision, samples(model, 50)).content
    classes, value = model([feed["zebra"], feed["ant"]])
    outputs = run(content, feed)
    reach = float(np.abs(classes).max())
    np.testing.assert_allclose(outputs["classes"], classes, atol=tolerance * reach)
    np.testing.assert_allclose(outputs["value"], value, atol=tolerance * reach)
    integer = Interpreter(
        model_content=convert.convert(model, precision, samples(model, 5), dtype, dtype).content
    )
    details = integer.get_input_details() + integer.get_output_details()
    assert {np.dtype(detail["dtype"]).name for detail in details} == {dtype}


def test_convert_notes_the_pool_that_became_a_mean() -> None:
    conversion = convert.convert(small_cnn(), "float32")
    assert [note.split(":")[0] for note in conversion.notes] == ["pool"]
    interpreter = Interpreter(model_content=conversion.content)
    names = {operator["op_name"] for operator in interpreter._get_ops_details()}
    assert "MEAN" in names
    assert "AVERAGE_POOL_2D" not in names


def test_static_int8_stays_near_a_gru_whose_loop_would_crash_the_calibration() -> None:
    inputs = keras.Input((5, 3), name="sequence")
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.GRU(4)(inputs)))
    x = np.random.default_rng(0).normal(size=(16, 1, 5, 3)).astype(np.float32)
    calibration = [{"sequence": each} for each in x]
    content = convert.convert(model, "static_int8", calibration).content
    given = np.concatenate([run(content, {"sequence": each})["output_0"] for each in x])
    wanted = np.concatenate([model(each) for each in x])
    assert np.sqrt(np.mean((given - wanted) ** 2)) < 0.05 * wanted.std()


def test_static_int8_names_the_convolutional_loop_that_it_refuses() -> None:
    inputs = keras.Input((3, 4, 4, 2))
    outputs = keras.layers.Flatten()(keras.layers.ConvLSTM2D(2, 3, name="films")(inputs))
    with pytest.raises(StageError, match="loop over steps") as caught:
        convert.convert(keras.Model(inputs, outputs), "static_int8", [], "int8", "int8")
    assert caught.value.subject == "films"


def test_convert_names_operator_and_layer_when_tflite_lacks_it() -> None:
    with pytest.raises(StageError, match="Betainc") as caught:
        to_float32(dense_after(lambda x: tf.math.betainc(x, x, x)))
    assert caught.value.subject == "odd"
    assert caught.value.hint


def test_static_int16_names_the_operator_without_16_bit_version() -> None:
    model = dense_after(lambda x: tf.cumsum(x, axis=1))
    with pytest.raises(StageError, match="CUMSUM"):
        convert.convert(model, "static_int16", samples(model, 2))


def _zeros(width: int) -> np.ndarray:
    return np.zeros((1, width), np.float32)


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        ([], "no calibration examples"),
        ([{"zebra": _zeros(6)}], "inputs are zebra, ant, the arrays are zebra"),
        ([{"zebra": _zeros(6), "cat": _zeros(4)}], "the arrays are zebra, cat"),
        ([{"zebra": _zeros(4), "ant": _zeros(4)}], "does not suit"),
        ([{"zebra": np.nan * _zeros(6), "ant": _zeros(4)}], "finite"),
    ],
)
def test_static_int8_refuses_calibration(calibration: list, message: str) -> None:
    with pytest.raises(StageError, match=message):
        convert.convert(two_by_two(), "static_int8", calibration, "int8", "int8")


def test_convert_refuses_io_type_that_the_precision_lacks() -> None:
    model = small_cnn()
    with pytest.raises(StageError, match="int16"):
        convert.convert(model, "static_int8", samples(model, 1), "int16", "int8")


def test_to_float32_takes_a_model_of_mixed_precision() -> None:
    inputs = L.Input((4,), name="x")
    model = keras.Model(inputs, L.Dense(2, dtype="mixed_float16")(inputs))
    x = np.ones((1, 4), np.float32)
    outputs = run(to_float32(model), {"x": x})
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(outputs["output_0"], x @ kernel + bias, rtol=1e-5)


def test_to_float32_refuses_a_subclassed_model() -> None:
    class Subclassed(keras.Model):
        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            return inputs

    with pytest.raises(ModelError, match="subclassed"):
        to_float32(Subclassed())


def test_to_float32_refuses_a_saved_model_for_another_batch(tmp_path: Path) -> None:
    module = tf.Module()
    module.double = tf.function(
        lambda x: {"y": 2 * x}, input_signature=[tf.TensorSpec([8, 3], tf.float32, name="x")]
    )
    tf.saved_model.save(module, str(tmp_path), signatures=module.double)
    with pytest.raises(StageError, match="batch of 1"):
        to_float32(tmp_path)


def test_static_int8_calibrates_each_example_from_an_lstms_first_state() -> None:
    keras.utils.set_random_seed(2)
    inputs = L.Input((6, 4), name="sequence")
    model = keras.Model(inputs, L.Dense(3)(L.LSTM(5)(inputs)))
    examples = list(samples(model, 16))
    content = convert.convert(model, "static_int8", examples).content
    expected = np.concatenate([model(x["sequence"]) for x in examples])
    (graph,) = read(content)
    output = graph.tensors[graph.operators[-1].inputs[0]]
    (scale,), (zero_point,) = output.scales, output.zero_points
    assert scale == pytest.approx((expected.max() - expected.min()) / 255, rel=0.05)
    assert (-128 - zero_point) * scale == pytest.approx(expected.min(), abs=2 * scale)


def test_convert_takes_a_saved_model_whose_loop_was_traced_for_any_batch(tmp_path: Path) -> None:
    """As Keras 3's `model.export` writes an LSTM; ranges of what runs in a loop cannot be had."""
    inputs = keras.Input((6, 4), name="series")
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.GRU(5)(inputs)))
    signature = [tf.TensorSpec([None, 6, 4], tf.float32, name="series")]
    module = tf.Module()
    module.model = model
    served = tf.function(lambda series: {"forecast": model(series)}, input_signature=signature)
    tf.saved_model.save(module, str(tmp_path / "export"), signatures=served)
    x = np.random.default_rng(0).normal(size=(7, 6, 4)).astype(np.float32)
    content = to_float32(tmp_path / "export")
    assert "WHILE" in {operator.name for operator in read(content)[0].operators}
    np.testing.assert_allclose(load(content).predict(x)[0], model(x), atol=1e-5)
    examples: Any = UnlabelledExamples(x)
    with pytest.raises(StageError, match="loop over steps") as caught:
        static_int8(
            FloatModel(content=content), CalibrationExamples(examples, 7, 0), QuantizeConfig()
        )
    assert "dynamic_wi8_afp32" in str(caught.value.hint)


def test_convert_says_how_to_fix_an_open_side_and_that_keeps_the_outputs() -> None:
    inputs = keras.layers.Input((None, None, 3), name="picture")
    hidden = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    with pytest.raises(ModelError, match="every dimension fixed") as caught:
        convert.convert(model, "float32")
    assert caught.value.subject == "picture"
    assert "clone_model(model, keras.Input((96, 96, 3)))" in str(caught.value.hint)
    fixed = keras.models.clone_model(model, keras.Input((8, 8, 3)))
    fixed.set_weights(model.get_weights())
    x = np.random.default_rng(0).normal(size=(1, 8, 8, 3)).astype(np.float32)
    (found,) = load(to_float32(fixed)).predict(x)
    np.testing.assert_allclose(found, model(x).numpy(), rtol=1e-5, atol=1e-6)


def test_integer_inputs_that_16_bits_cannot_calibrate_are_refused_by_name() -> None:
    text = (
        "Max and min for dynamic tensors should be recorded during calibration: "
        "Failed for tensor serving_default_ids:0"
    )
    error = explain(ValueError(text), "static_int16")
    assert "'ids'" in error.message
    assert "static_wi8_ai8" in (error.hint or "")
    assert "failed on static_int8" in explain(ValueError(text), "static_int8").message


def test_convert_gives_what_a_converter_that_loads_the_model_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, loaded = small_cnn(), list[str]()

    def count(folder: str, tags: object = None) -> object:
        loaded.append(folder)
        return tf.saved_model.load(folder, tags)

    monkeypatch.setattr(lite, "_load", count)
    unloaded = to_float32(model)
    assert loaded == []
    monkeypatch.setattr(convert, "_not_loaded", contextlib.nullcontext)
    with_loading = to_float32(model)
    assert len(loaded) == 2
    # Two conversions of one model need not have the same bytes.
    names = [
        [one.name for one in read(content)[0].operators] for content in (unloaded, with_loading)
    ]
    assert names[0] == names[1]
    (x,) = batch(model, 5)
    np.testing.assert_array_equal(load(unloaded).predict(x)[0], load(with_loading).predict(x)[0])
