from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from ai_edge_litert import schema_py_generated as schema

from shrink.tflite.arena import predict_in_micro
from shrink.tflite.convert import convert
from shrink.tflite.edit import (
    exposing,
    with_constants,
    with_mended_scales,
    with_metadata,
    without_constant_names,
)
from shrink.tflite.interpreter import load
from shrink.tflite.model import packed, read, read_metadata, unpacked
from tests.tflite.toys import batch, samples, small_cnn

L = keras.layers


def twins() -> keras.Model:
    """Two dense layers in a row with equal weights, which a converter stores once."""
    inputs = L.Input((4,), name="x")
    x = L.Dense(4, kernel_initializer="ones", name="one")(inputs)
    return keras.Model(inputs, L.Dense(4, kernel_initializer="ones", name="two")(x))


def test_with_constants_changes_the_named_operator_alone_when_values_are_shared() -> None:
    content = convert(twins(), "float32").content
    graph = read(content)[0]
    dense = [i for i, o in enumerate(graph.operators) if o.name == "FULLY_CONNECTED"]
    assert len(dense) == 2
    shared = {graph.tensors[graph.operators[i].inputs[1]].buffer for i in dense}
    assert len(shared) == 1
    changed = with_constants(content, {(dense[1], 1): 2 * np.ones((4, 4), np.float32)})
    x = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)
    np.testing.assert_allclose(load(changed).predict(x)[0], np.full((1, 4), 10 * 4 * 2))
    np.testing.assert_allclose(load(content).predict(x)[0], np.full((1, 4), 10 * 4))


def test_with_constants_adds_no_bytes_when_the_values_have_one_reader() -> None:
    content = convert(small_cnn(), "float32").content
    weights = read(content)[0].tensors[read(content)[0].operators[0].inputs[1]]
    changed = with_constants(content, {(0, 1): np.zeros(weights.shape, np.float32)})
    assert len(changed) <= len(content) + 64
    outputs = load(changed).predict(batch(small_cnn(), 2)[0])[0]
    np.testing.assert_allclose(outputs[0], outputs[1])


def test_exposing_gives_a_layers_output_and_leaves_the_rest_out() -> None:
    model = small_cnn()
    content = convert(model, "float32").content
    graph = read(content)[0]
    exposed = exposing(content, [graph.operators[0].outputs[0]])
    assert [o.name for o in read(exposed)[0].operators] == ["CONV_2D"]
    (x,) = batch(model, 3)
    expected = keras.Model(model.input, model.get_layer("conv").output)(x)
    np.testing.assert_allclose(load(exposed).predict(x)[0], expected, atol=1e-5)


def test_with_metadata_keeps_the_model_and_is_read_back() -> None:
    content = convert(small_cnn(), "float32").content
    told = with_metadata(with_metadata(content, "shrink", b"old"), "shrink", b'{"labels": 1}')
    assert read_metadata(told, "shrink") == [b'{"labels": 1}']
    assert read_metadata(content, "shrink") == []
    (x,) = batch(small_cnn(), 3)
    np.testing.assert_array_equal(load(told).predict(x)[0], load(content).predict(x)[0])
    assert len(told) < len(content) + 1_000


def test_edited_models_have_their_values_at_multiples_of_16_bytes() -> None:
    content = convert(small_cnn(), "float32").content
    told = with_metadata(content, "shrink", b"odd length")
    weights = [t.data.tobytes() for t in read(told)[0].tensors if t.data.size > 64]
    assert weights
    assert [told.index(values) % 16 for values in weights] == [0] * len(weights)


def test_without_constant_names_keeps_outputs_and_the_names_of_activations() -> None:
    content = convert(small_cnn(), "float32").content
    bare = without_constant_names(content)
    before, after = read(content)[0].tensors, read(bare)[0].tensors
    last = read(content)[0].operators[-1].inputs
    for index, tensor in enumerate(after):
        assert tensor.name == (before[index].name if not tensor.constant or index in last else "")
    assert len(bare) < len(content)
    inputs = batch(small_cnn(), 2)[0]
    np.testing.assert_array_equal(load(bare).predict(inputs)[0], load(content).predict(inputs)[0])


def lstm() -> keras.layers.Layer:
    return L.LSTM(5, return_sequences=True)


def stacked(x: tf.Tensor) -> tf.Tensor:
    """The second one's cells stay below 0.5."""
    return lstm()(lstm()(x))


def added(x: tf.Tensor) -> tf.Tensor:
    return L.Add()([lstm()(x), lstm()(x)])


def bidirectional(x: tf.Tensor) -> tf.Tensor:
    """Concatenates an LSTM's output and another one's, reversed."""
    return L.Bidirectional(lstm())(x)


def reversed_convolution(x: tf.Tensor) -> tf.Tensor:
    y = L.Conv1D(5, 3, padding="same")(x)
    return L.Concatenate()([tf.reverse(0.3 * L.Conv1D(5, 3, padding="same")(x), [1]), y])


@functools.cache
def build(layers: Callable[[tf.Tensor], tf.Tensor]) -> keras.Model:
    keras.utils.set_random_seed(1)
    inputs = L.Input((6, 4), name="sequence")
    return keras.Model(inputs, L.Dense(3)(L.Flatten()(layers(inputs))))


@functools.cache
def int8(layers: Callable[[tf.Tensor], tf.Tensor]) -> bytes:
    return convert(build(layers), "static_int8", samples(build(layers), 64)).content


def lstms(content: bytes) -> list[dict[str, Any]]:
    """Return the quantization, (scale, zero point), of each LSTM's tensors."""
    model = unpacked(content)
    (graph,) = model.subgraphs
    found = []
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex].builtinCode
        if code == schema.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM:
            places = {
                "output": operator.outputs[0],
                "state": operator.inputs[18],
                "cell": operator.inputs[19],
                "hidden": operator.intermediates[4],
            }
            tensors = {name: graph.tensors[i].quantization for name, i in places.items()}
            found.append({n: (float(q.scale[0]), int(q.zeroPoint[0])) for n, q in tensors.items()})
    return found


@pytest.mark.parametrize("layers", [stacked, added, bidirectional, reversed_convolution])
def test_int8_computes_what_the_model_computes(layers: Any) -> None:
    (x,) = batch(build(layers), 64)
    expected = build(layers)(x).numpy()
    (found,) = load(int8(layers)).predict(x)
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.1 * expected.std()


@pytest.mark.parametrize("layers", [stacked, bidirectional])
def test_int8_gives_in_tflite_micro_what_it_gives_in_litert(layers: Any) -> None:
    (x,) = batch(build(layers), 3)
    (found,) = predict_in_micro(int8(layers), x)
    (graph,) = read(int8(layers))
    (step,) = graph.tensors[graph.operators[-1].inputs[0]].scales
    # Their kernels round differently, by one code.
    np.testing.assert_allclose(found, load(int8(layers)).predict(x)[0], rtol=0, atol=1.01 * step)
    assert np.ptp(found, axis=0).max() > 10 * step


@pytest.mark.parametrize("layers", [stacked, added, bidirectional])
def test_an_lstms_output_state_and_hidden_values_have_one_quantization(layers: Any) -> None:
    found = lstms(int8(layers))
    assert len(found) == 2
    for each in found:
        assert each["output"] == each["state"] == each["hidden"]
        assert 2**-15 <= each["cell"][0] <= 2**-9


@pytest.mark.parametrize(("cell", "kept"), [(2**-17, 2**-15), (2**-12, 2**-12), (2**-8, 2**-9)])
def test_an_lstms_cell_has_a_scale_that_the_kernels_tanh_knows(cell: float, kept: float) -> None:
    model = unpacked(int8(stacked))
    (graph,) = model.subgraphs
    places = [o.inputs[19] for o in graph.operators if len(o.inputs) == 24]
    graph.tensors[places[0]].quantization.scale = [cell]
    assert lstms(with_mended_scales(packed(model)))[0]["cell"][0] == kept


def test_with_mended_scales_leaves_right_files_as_they_are() -> None:
    content = convert(small_cnn(), "float32").content
    assert with_mended_scales(content) is content
    mended = int8(bidirectional)
    assert with_mended_scales(mended) == packed(unpacked(mended))
    floats = convert(build(bidirectional), "float32").content
    (x,) = batch(build(bidirectional), 3)
    after = load(with_mended_scales(floats)).predict(x)[0]
    np.testing.assert_array_equal(after, load(floats).predict(x)[0])
