from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError, ModelError
from shrink.compact.graph import write_graph
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.compact.schedule import Tiling
from shrink.compact.segment import GraphInfo
from shrink.tflite import convert
from shrink.tflite.edit import with_ordered_borders
from shrink.tflite.interpreter import (
    Session,
    TensorDetail,
    dequantize,
    load,
    quantize,
    random_values,
)
from shrink.tflite.model import packed, unpacked
from tests.compact.random_tilings import in_tiles
from tests.compact.toys import Net
from tests.tflite.toys import batch, samples, small_cnn, to_float32, two_by_two

L = keras.layers


@functools.cache
def float32(build: Callable[[], keras.Model]) -> bytes:
    return to_float32(build())


def baked_reshape() -> keras.Model:
    """A graph that says (1, 8) where it means (batch, 8)."""
    inputs = L.Input((2, 4), name="x")
    flat = L.Lambda(lambda x: tf.reshape(x, (1, 8)))(inputs)
    return keras.Model(inputs, L.Dense(2)(flat))


def mixed_rows() -> keras.Model:
    """A graph that survives a resize and then mixes the rows of a batch."""
    inputs = L.Input((4,), name="x")
    centred = L.Lambda(lambda x: x - tf.reduce_max(x, axis=0, keepdims=True) / 2)(inputs)
    return keras.Model(inputs, L.Dense(2)(centred))


def one_by_one(model: keras.Model, x: np.ndarray) -> np.ndarray:
    return np.concatenate([model(x[i : i + 1]) for i in range(len(x))])


@pytest.mark.parametrize("batch_size", [1, 3, 7, 250])
def test_predict_equals_keras_whatever_the_batch_size(batch_size: int) -> None:
    model = small_cnn()
    (x,) = batch(model, 7)
    (outputs,) = load(float32(small_cnn)).predict(x, batch_size)
    np.testing.assert_allclose(outputs, model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", [("zebra", "ant"), ("ant", "zebra")])
def test_predict_feeds_inputs_by_name_whatever_the_order_of_the_file(
    order: tuple[str, ...],
) -> None:
    model = two_by_two()
    arrays = batch(model, 9)
    content = with_ordered_borders(float32(two_by_two), order, ("value", "classes"))
    runner = load(content)
    assert runner.input_names == order
    outputs = runner.predict(dict(zip(("zebra", "ant"), arrays, strict=True)), 4)
    for output, expected in zip(outputs[::-1], model(arrays), strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_predict_refuses_other_names() -> None:
    runner = load(float32(two_by_two))
    with pytest.raises(DataError, match=r"zebra, ant.*zebra, cat"):
        runner.predict({"zebra": np.zeros((1, 6)), "cat": np.zeros((1, 4))})


def test_predict_is_one_quantization_step_from_float_when_io_is_integer() -> None:
    model = small_cnn()
    (x,) = batch(model, 20)
    runner = load(
        convert.convert(model, "static_int8", samples(model, 100), "int8", "int8").content
    )
    (outputs,) = runner.predict(x, 8)
    assert runner.input_details[0].dtype == np.int8
    assert outputs.dtype == np.float64
    error = np.abs(outputs - model(x).numpy())
    assert error.mean() < 2 * runner.output_details[0].scale
    steps = outputs / runner.output_details[0].scale
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-9)


@pytest.mark.parametrize("build", [baked_reshape, mixed_rows])
@pytest.mark.parametrize("count", [5, 150])
def test_predict_runs_one_by_one_when_a_batch_would_mix_rows(build: object, count: int) -> None:
    model = build()  # type: ignore[operator]
    (x,) = batch(model, count)
    (outputs,) = load(to_float32(model)).predict(x)
    np.testing.assert_allclose(outputs, one_by_one(model, x), rtol=1e-4, atol=1e-5)


def tiled_residual(planned: bool) -> bytes:
    """A residual block, its convolution in two row tiles."""
    net = Net((1, 16, 8, 4))
    first = net.conv(net.input, 4)
    graph = read_graph(net.file(net.add(first, net.conv(first, 4))))
    banded = in_tiles(GraphInfo(graph), [Tiling(1, 2, (8,))])
    return write_graph(banded, plan(banded, 5).offsets if planned else None)


@pytest.mark.parametrize("planned", [False, True])
def test_predict_runs_a_file_in_bands_example_by_example(planned: bool) -> None:
    """Resized, all would get the convolution of the first; the first and last do not tell."""
    content = tiled_residual(planned)
    x = np.random.default_rng(0).normal(0, 20, (5, 16, 8, 4)).astype(np.float32)
    x[-1] = x[0]
    alone = np.concatenate([load(content).predict(x[i : i + 1])[0] for i in range(5)])
    assert load(content).predict(x)[0].tolist() == alone.tolist()
    resized = Session(content, 5).run([x])[0]  # the control
    assert resized.shape == alone.shape
    assert resized[[0, -1]].tolist() == alone[[0, -1]].tolist()
    assert resized[1:-1].tolist() != alone[1:-1].tolist()


def test_predict_keeps_the_order_of_examples_when_calls_differ_in_size() -> None:
    model = small_cnn()
    (x,) = batch(model, 50)
    expected = model(x).numpy()
    runner = load(float32(small_cnn))
    for count in (1, 50, 7, 49, 2):
        (outputs,) = runner.predict(x[:count], 8)
        np.testing.assert_allclose(outputs, expected[:count], rtol=1e-4, atol=1e-5)


def test_predict_forgets_recurrent_state_between_examples() -> None:
    inputs = L.Input((5, 3), name="sequence")
    model = keras.Model(inputs, L.Dense(2)(L.LSTM(4)(inputs)))
    (x,) = batch(model, 4)
    (outputs,) = load(to_float32(model)).predict(x, 1)
    np.testing.assert_allclose(outputs, model(x), rtol=1e-4, atol=1e-5)


def test_predict_returns_no_rows_for_no_examples() -> None:
    (outputs,) = load(float32(small_cnn)).predict(np.zeros((0, 8, 8, 1)))
    assert outputs.shape == (0, 3)


@pytest.mark.parametrize("shapes", [[(2, 6)], [(2, 6), (3, 4)], [(2, 4), (2, 5)]])
def test_predict_refuses_arrays_that_do_not_match(shapes: list[tuple[int, ...]]) -> None:
    arrays = dict(zip(("zebra", "ant"), (np.zeros(s, np.float32) for s in shapes), strict=False))
    with pytest.raises(DataError):
        load(float32(two_by_two)).predict(arrays)


def test_quantize_rounds_and_clips() -> None:
    detail = TensorDetail("x", (1,), np.dtype(np.int8), 0.5, -3)
    stored = quantize(np.array([0.0, 0.6, -0.25, 1e6, -1e6], np.float32), detail)
    assert stored.tolist() == [-3, -2, -3, 127, -128]
    assert dequantize(stored[:3], detail).tolist() == [0.0, 0.5, 0.0]


def test_dequantize_keeps_logits_that_differ_by_a_constant_so() -> None:
    detail = TensorDetail("x", (3,), np.dtype(np.int8), float(np.float32(0.0371)), -5)
    stored = np.array([[3, -20, 90], [10, -13, 97]], np.int8)
    first, second = dequantize(stored, detail)
    assert np.ptp(second - first) < 1e-14  # in float32 it is 1e-7


@pytest.mark.parametrize("content", [b"", b"no model at all", b"TFL3" * 20])
def test_load_refuses_what_is_no_model(content: bytes) -> None:
    with pytest.raises(ModelError):
        load(content)


def test_load_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path / "missing.tflite")


def test_outputs_do_not_depend_on_what_was_run_before() -> None:
    (x,) = batch(small_cnn(), 7)
    runner, alone = load(float32(small_cnn)), load(float32(small_cnn))
    runner.predict(x[:6], 6)
    np.testing.assert_array_equal(runner.predict(x, 3)[0], alone.predict(x, 3)[0])
    assert runner._batched.batch == alone._batched.batch == 3


def test_random_values_are_the_same_every_time_and_no_zeros() -> None:
    shape, types = (4, 5, 5, 2), (np.float32, np.int8, np.int32)
    real, quantized, index = (random_values(np.random.default_rng(0), shape, t) for t in types)
    assert [one.dtype for one in (real, quantized, index)] == list(map(np.dtype, types))
    assert np.all((real > 0) & (real < 1))
    assert quantized.min() < -100 < 100 < quantized.max()
    assert set(index.ravel().tolist()) == {0, 1}
    again = random_values(np.random.default_rng(0), shape, np.float32)
    np.testing.assert_array_equal(again, real)


def test_a_file_of_several_signatures_is_refused_by_their_names(tmp_path: Path) -> None:
    """Each has a subgraph of its own, and LiteRT's interpreter runs the first."""
    module = tf.Module()
    spec = [tf.TensorSpec((1, 4))]
    signatures = {
        "scores": tf.function(lambda x: {"y": 2 * x}, input_signature=spec),
        "best": tf.function(lambda x: {"y": tf.argmax(x, -1)}, input_signature=spec),
    }
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    content = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path)).convert()
    with pytest.raises(ModelError, match=r"2 signatures \(best, scores\)"):
        load(content)


def test_operators_of_tensorflow_are_named_where_litert_lacks_them() -> None:
    net = Net((1, 4))
    model = unpacked(net.file(net.relu(net.input)))
    code = model.operatorCodes[0]
    code.builtinCode = code.deprecatedBuiltinCode = 32  # CUSTOM
    code.customCode = b"FlexMaxPool3D"
    with pytest.raises(ModelError, match="operators of TensorFlow: FlexMaxPool3D") as caught:
        load(packed(model))
    assert "without SELECT_TF_OPS" in str(caught.value.hint)
