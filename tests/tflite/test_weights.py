from __future__ import annotations

import functools
import random

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter

from shrink.base.errors import ModelError
from shrink.tflite import convert, weights
from shrink.tflite import model as tflite_model
from shrink.tflite.model import Tensor
from tests.tflite.toys import batch, samples, small_cnn, to_float32

L = keras.layers
SMALL_CNN_PARAMETERS = 4 * (9 + 1) + 3 * (4 + 1)


@functools.cache
def small(precision: convert.Precision) -> bytes:
    model = small_cnn()
    for variable in model.variables:  # a zero bias would not count as a parameter that is in use
        variable.assign_add(tf.ones_like(variable) / 8)
    return convert.convert(model, precision, list(samples(model, 5))).content


def test_read_agrees_with_the_interpreter() -> None:
    content = small("static_int8")
    (graph,) = tflite_model.read(content)
    interpreter = Interpreter(model_content=content)
    expected = [o for o in interpreter._get_ops_details() if o["op_name"] != "DELEGATE"]
    assert [o.name for o in graph.operators] == [o["op_name"] for o in expected]
    assert [o.inputs for o in graph.operators] == [tuple(o["inputs"]) for o in expected]
    details = {d["index"]: d for d in interpreter.get_tensor_details()}
    for index, tensor in enumerate(graph.tensors):
        assert tensor.name == details[index]["name"]
        assert tensor.shape == tuple(details[index]["shape"])
        scales = details[index]["quantization_parameters"]["scales"]
        np.testing.assert_array_equal(np.array(tensor.scales, np.float32), scales)
    assert [graph.tensors[i].constant for i in graph.inputs + graph.outputs] == [False, False]


@pytest.mark.parametrize("precision", ["float32", "float16", "static_int8", "static_int16"])
def test_parameters_is_the_keras_count_whatever_the_precision(
    precision: convert.Precision,
) -> None:
    assert weights.parameters(small(precision)) == SMALL_CNN_PARAMETERS


def test_parameters_lacks_only_what_folding_batch_norm_saves() -> None:
    inputs = L.Input((6, 6, 2))
    x = L.BatchNormalization()(L.Conv2D(5, 3)(inputs))
    content = to_float32(keras.Model(inputs, x))
    assert weights.parameters(content) == 5 * (3 * 3 * 2) + 5


@pytest.mark.parametrize("precision", ["float32", "static_int8"])
def test_nonzero_parameters_leaves_out_the_zeroed_ones(precision: convert.Precision) -> None:
    inputs = L.Input((16,))
    model = keras.Model(inputs, L.Dense(8, use_bias=False)(inputs))
    kernel = np.linspace(0.5, 1.0, 16 * 8, dtype=np.float32).reshape(16, 8)
    kernel[::2] = 0
    model.set_weights([kernel])
    content = convert.convert(model, precision, list(samples(model, 5))).content
    assert weights.nonzero_parameters(content) == 8 * 8


def test_quantized_operators_counts_integer_arithmetic_only() -> None:
    assert weights.quantized_operators(small("float32")) == 0
    assert weights.quantized_operators(small("float16")) == 0
    (graph,) = tflite_model.read(small("static_int8"))
    borders = [o.name for o in graph.operators if o.name in ("QUANTIZE", "DEQUANTIZE")]
    assert borders == ["QUANTIZE", "DEQUANTIZE"]
    assert weights.quantized_operators(small("static_int8")) == len(graph.operators) - 2


def test_float_operators_names_what_stayed_in_floating_point() -> None:
    assert weights.float_operators(small("static_int8")) == []
    (graph,) = tflite_model.read(small("float32"))
    assert weights.float_operators(small("float32")) == [o.name for o in graph.operators]


def test_float_operators_names_the_one_operator_without_integer_kernel() -> None:
    inputs = L.Input((4,))
    x = L.Lambda(lambda x: tf.cumsum(x, axis=1))(L.Dense(4)(inputs))
    model = keras.Model(inputs, L.Dense(2)(x))
    content = convert.convert(model, "static_int8", samples(model, 5), "int8", "int8").content
    assert weights.float_operators(content) == ["CUMSUM"]


def test_values_unpacks_two_int4_from_a_byte() -> None:
    data = np.array([0x21, 0xF8, 0x07], np.uint8)
    tensor = Tensor("w", (5,), "INT4", (1.0,), (0,), 1, data, sparse=False, variable=False)
    stored = tflite_model.values(tensor)
    assert stored is not None
    assert stored.tolist() == [1, 2, -8, -1, 7]


def test_values_equals_the_keras_kernel() -> None:
    model = small_cnn()
    kernels = {w.shape: tflite_model.values(w) for w in weights.weights(to_float32(model))}
    stored = kernels[(3, 4)]
    assert stored is not None
    kernel = model.get_layer("logits").kernel.numpy()
    np.testing.assert_array_equal(stored.reshape(3, 4), kernel.T)
    assert batch(model, 1)[0].shape == (1, 8, 8, 1)


def test_read_refuses_every_truncation() -> None:
    content = small("static_int8")
    kept = 0
    for length in range(0, len(content) - 64, 7):
        try:
            tflite_model.read(content[:length])
            kept += 1
        except ModelError:
            pass
    # The root and the vtables stand first: some cuts lose nothing but the last buffers' padding.
    assert kept < len(content) // 7 // 20


def test_read_raises_nothing_but_model_error_when_bytes_are_flipped() -> None:
    content = small("static_int8")
    source = random.Random(0)
    refused = 0
    for _ in range(1500):
        mutant = bytearray(content)
        for _ in range(source.randint(1, 12)):
            mutant[source.randrange(len(mutant))] = source.randrange(256)
        try:
            weights.nonzero_parameters(bytes(mutant))
            weights.quantized_operators(bytes(mutant))
        except ModelError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("content", [b"", b"TFL3", b"\0\0\0\0TFL3", b"PK\3\4" * 30])
def test_read_refuses_what_is_no_model(content: bytes) -> None:
    with pytest.raises(ModelError):
        tflite_model.read(content)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize(
    "layer",
    [L.GRU(12), L.SimpleRNN(12, return_sequences=True), L.LSTM(12)],
)
def test_parameters_are_keras_own_without_what_a_loop_begins_with(
    layer: keras.layers.Layer, precision: convert.Precision
) -> None:
    inputs = L.Input((5, 4))
    model = keras.Model(inputs, layer(inputs))
    rng = np.random.default_rng(0)
    # A bias of zeros would be left out by the converter.
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    content = convert.convert(model, precision).content
    assert weights.parameters(content) == model.count_params()
