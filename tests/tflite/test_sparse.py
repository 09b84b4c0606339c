from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tf_keras as keras

from shrink.quantization import edge_quantizer
from shrink.tflite.convert import Precision, convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import read, values
from shrink.tflite.sparse import with_sparse_constants
from shrink.tflite.weights import (
    nonzero_parameters,
    operator_weights,
    parameters,
    quantized_operators,
    weights,
)

L = keras.layers


def mostly_zeros(share: float) -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = L.Input((12, 12, 8), name="x")
    x = L.Conv2D(32, 3, activation="relu", name="conv")(inputs)
    x = L.DepthwiseConv2D(3, depth_multiplier=4, name="depthwise")(x)
    x = L.Conv2D(64, 1, activation="relu", name="pointwise")(x)
    x = L.Dense(64, activation="relu", name="hidden")(L.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, L.Dense(10, name="answer")(x))
    for weight in model.trainable_weights:
        values = weight.numpy()
        if values.ndim > 1:
            weight.assign(values * (np.abs(values) >= np.quantile(np.abs(values), share)))
        else:
            weight.assign(np.random.default_rng(0).normal(size=values.shape))
    return model


def images(count: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, 12, 12, 8)).astype(np.float32)


def converted(model: keras.Model, precision: Precision) -> bytes:
    samples = [{"x": image[None]} for image in images(8)]
    return convert(model, precision, samples).content


def sparse_operators(content: bytes) -> list[str]:
    """Return the names of the operators that read what DENSIFY wrote."""
    graph = read(content)[0]
    written = {o.outputs[0] for o in graph.operators if o.name == "DENSIFY"}
    return [o.name for o in graph.operators if written & set(o.inputs)]


@pytest.mark.parametrize(
    ("precision", "most"), [("float32", 0.4), ("float16", 0.6), ("static_int8", 0.9)]
)
def test_with_sparse_constants_makes_a_smaller_file_of_the_same_outputs(
    precision: Precision, most: float
) -> None:
    content = converted(mostly_zeros(0.8), precision)
    sparse = with_sparse_constants(content)
    assert len(sparse) < most * len(content)
    x = images(4)
    for before, after in zip(load(content).predict(x), load(sparse).predict(x), strict=True):
        np.testing.assert_array_equal(before, after)
    assert parameters(sparse) == parameters(content)
    assert nonzero_parameters(sparse) == nonzero_parameters(content)


def test_with_sparse_constants_leaves_int8_dense_layers_which_the_runtime_would_refuse() -> None:
    sparse = with_sparse_constants(converted(mostly_zeros(0.9), "static_int8"))
    assert "FULLY_CONNECTED" not in sparse_operators(sparse)
    assert sparse_operators(sparse).count("CONV_2D") == 2


def test_with_sparse_constants_leaves_integer_weights_beside_float_activations() -> None:
    content = edge_quantizer.quantize(converted(mostly_zeros(0.9), "float32"), "dynamic")
    assert not sparse_operators(with_sparse_constants(content))


def test_with_sparse_constants_stores_weight_only_kernels_sparsely() -> None:
    content = edge_quantizer.quantize(converted(mostly_zeros(0.9), "float32"), "weight_only")
    sparse = with_sparse_constants(content)
    assert set(sparse_operators(sparse)) == {"DEQUANTIZE"}
    x = images(4)
    np.testing.assert_array_equal(load(content).predict(x)[0], load(sparse).predict(x)[0])


def test_with_sparse_constants_leaves_what_would_grow() -> None:
    content = converted(mostly_zeros(0.1), "float16")
    sparse = with_sparse_constants(content)
    assert not any(tensor.sparse for tensor in weights(sparse))
    np.testing.assert_array_equal(
        load(content).predict(images(2))[0], load(sparse).predict(images(2))[0]
    )


def test_with_sparse_constants_leaves_kernels_that_two_layers_share() -> None:
    inputs = L.Input((64,), name="x")
    kernel = np.zeros((64, 64), np.float32)
    kernel[::16] = 1
    twins = [L.Dense(64, name=name) for name in ("one", "two")]
    model = keras.Model(inputs, twins[1](twins[0](inputs)))
    for layer in twins:
        layer.set_weights([kernel, np.zeros(64, np.float32)])
    content = convert(model, "float32").content
    sparse = with_sparse_constants(content)
    x = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    np.testing.assert_array_equal(load(content).predict(x)[0], load(sparse).predict(x)[0])


def test_with_sparse_constants_leaves_kernels_of_nothing_but_zeros() -> None:
    model = mostly_zeros(0.9)
    model.get_layer("hidden").kernel.assign(np.zeros((64, 64)))
    content = converted(model, "float32")
    sparse = with_sparse_constants(content)
    x = images(2)
    np.testing.assert_array_equal(load(content).predict(x)[0], load(sparse).predict(x)[0])
    assert parameters(sparse) == parameters(content)


@pytest.mark.parametrize("precision", ["float32", "float16", "static_int8"])
def test_values_of_sparse_tensors_are_those_of_the_dense_file(precision: Precision) -> None:
    content = converted(mostly_zeros(0.9), precision)
    dense = {tensor.name: values(tensor) for tensor in weights(content)}
    found = [tensor for tensor in weights(with_sparse_constants(content)) if tensor.sparse]
    assert len(found) >= 2
    for tensor in found:
        np.testing.assert_array_equal(values(tensor), dense[tensor.name])


def zeroed(model: keras.Model) -> keras.Model:
    for weight in model.trainable_weights:
        values = weight.numpy()
        if values.ndim > 1:
            weight.assign(values * (np.abs(values) >= np.quantile(np.abs(values), 0.9)))
    return model


def sequence_model() -> keras.Model:
    inputs = L.Input((6, 32), name="x")
    return keras.Model(inputs, L.Dense(64)(L.LSTM(64)(inputs)))


def volume_model() -> keras.Model:
    inputs = L.Input((6, 6, 6, 8), name="x")
    return keras.Model(inputs, L.Dense(8)(L.Flatten()(L.Conv3D(32, 3)(inputs))))


def words_model() -> keras.Model:
    inputs = L.Input((12,), dtype="int32", name="x")
    return keras.Model(inputs, L.Dense(64)(L.Flatten()(L.Embedding(200, 32)(inputs))))


@pytest.mark.parametrize("build", [sequence_model, volume_model, words_model])
def test_with_sparse_constants_changes_no_output_of_layers_that_read_float16_otherwise(
    build: Callable[[], keras.Model],
) -> None:
    keras.utils.set_random_seed(0)
    model = zeroed(build())
    x = np.random.default_rng(0).uniform(0, 100, (3, *model.input_shape[1:])).astype(np.float32)
    content = convert(model, "float16").content
    dense, sparse = load(content), load(with_sparse_constants(content))
    for _ in range(2):  # what is made dense again can be overwritten by the first call
        np.testing.assert_array_equal(dense.predict(x)[0], sparse.predict(x)[0])


def test_with_sparse_constants_leaves_int8_kernels_whose_scales_it_would_store_twice() -> None:
    inputs = L.Input((6, 6, 512), name="x")
    model = zeroed(keras.Model(inputs, L.DepthwiseConv2D(3)(L.DepthwiseConv2D(3)(inputs))))
    samples = [{"x": np.random.default_rng(0).normal(size=(1, 6, 6, 512)).astype(np.float32)}]
    content = convert(model, "static_int8", samples).content
    assert len(with_sparse_constants(content)) < len(content) + 256


def test_quantized_operators_counts_those_that_read_sparse_integers() -> None:
    content = edge_quantizer.quantize(converted(mostly_zeros(0.9), "float32"), "weight_only")
    sparse = with_sparse_constants(content)
    assert quantized_operators(sparse) == quantized_operators(content) > 0


def test_operator_weights_are_those_of_the_layer_that_reads_them() -> None:
    graph = read(with_sparse_constants(converted(mostly_zeros(0.8), "float32")))[0]
    shapes = {
        operator.name: [tensor.shape for tensor in operator_weights(graph, operator)]
        for operator in graph.operators
    }
    assert shapes["DENSIFY"] == []
    assert shapes["DEPTHWISE_CONV_2D"] == [(1, 3, 3, 128), (128,)]
