from __future__ import annotations

import numpy as np
import tf_keras as keras

from shrink.tflite.convert import convert
from shrink.tflite.edit import (
    exposing,
    metadata_of,
    with_constants,
    with_metadata,
    without_constant_names,
)
from shrink.tflite.interpreter import load
from shrink.tflite.structure import read
from tests.tflite.toys import batch, small_cnn

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
    assert metadata_of(told, "shrink") == b'{"labels": 1}'
    assert metadata_of(content, "shrink") is None
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
