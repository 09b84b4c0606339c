from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.graph.macs import count_macs
from shrink.measure.layers import layer_paths, layer_table, operator_table
from shrink.tflite.convert import convert
from shrink.tflite.flatbuffer import parameters
from shrink.tflite.structure import read

L = keras.layers


@pytest.fixture(scope="module")
def model() -> keras.Model:
    """A nested model: convolution with batch normalization, then a dense layer."""
    inner_in = L.Input((8, 8, 3))
    x = L.Conv2D(4, 3, padding="same", use_bias=False, name="conv")(inner_in)
    inner = keras.Model(inner_in, L.ReLU(name="relu")(L.BatchNormalization(name="norm")(x)))
    inner._name = "inner"
    inputs = L.Input((8, 8, 3), name="picture")
    x = L.Flatten(name="flatten")(inner(inputs))
    built = keras.Model(inputs, L.Dense(10, name="dense")(x))
    kernel, bias = built.get_layer("dense").get_weights()
    kernel[: len(kernel) // 4] = 0
    built.get_layer("dense").set_weights([kernel, bias])
    return built


@pytest.fixture(scope="module")
def content(model: keras.Model) -> bytes:
    return convert(model, "float32").content


def test_layer_table_counts_by_closed_forms(model: keras.Model, content: bytes) -> None:
    rows = {row["name"]: row for row in layer_table(model, content)}
    convolution, dense = rows["inner/conv"], rows["dense"]
    assert convolution["macs"] == 8 * 8 * 4 * 3 * 3 * 3
    assert convolution["activation_bytes"] == 8 * 8 * 4 * 4
    assert (dense["macs"], dense["parameters"]) == (8 * 8 * 4 * 10, 8 * 8 * 4 * 10 + 10)
    assert dense["sparsity"] == pytest.approx(0.25)
    assert (rows["flatten"]["sparsity"], rows["flatten"]["macs"]) == (None, 0)


def test_layer_table_adds_up_to_the_model(model: keras.Model, content: bytes) -> None:
    rows = layer_table(model, content)
    assert sum(row["parameters"] for row in rows) == model.count_params()
    assert sum(row["macs"] for row in rows) == count_macs(content)


def test_operator_table_adds_up_to_the_artifact(model: keras.Model, content: bytes) -> None:
    rows = operator_table(read(content), ["conv", "norm", "relu", "flatten", "dense"])
    assert sum(row["macs"] for row in rows) == count_macs(content)
    assert sum(row["parameters"] for row in rows) == parameters(content)
    convolution = next(row for row in rows if row["name"] == "CONV_2D")
    assert (convolution["layer"], convolution["weights"]) == ("conv", "float32")
    assert convolution["activation_bytes"] == 8 * 8 * 4 * np.dtype(np.float32).itemsize
    dense = next(row for row in rows if row["name"] == "FULLY_CONNECTED")
    assert dense["sparsity"] == pytest.approx(0.25)


def block(name: str, kernel: int) -> keras.Model:
    inputs = L.Input((8, 8, 4))
    x = L.Conv2D(4, kernel, padding="same", use_bias=False, name="conv")(inputs)
    return keras.Model(inputs, L.ReLU(name="relu")(x), name=name)


def test_layer_table_tells_layers_of_one_name_apart_by_their_paths() -> None:
    inputs, inner = L.Input((8, 8, 4)), L.Input((8, 8, 4))
    first = block("a", 3)
    deep = keras.Model(inner, block("b", 1)(inner), name="deep")
    # A layer that is called as a model is, and a model that is used twice.
    x = L.Conv2D(4, 5, padding="same", name="a_1")(first(deep(first(inputs))))
    built = keras.Model(inputs, L.Dense(3, name="conv")(L.Flatten(name="flatten")(x)))
    content = convert(built, "float32").content
    macs = {row["name"]: row["macs"] for row in layer_table(built, content)}
    assert macs["a/conv"] == 2 * 8 * 8 * 4 * 3 * 3 * 4
    assert macs["deep/b/conv"] == 8 * 8 * 4 * 4
    assert macs["a_1"] == 8 * 8 * 4 * 5 * 5 * 4
    assert macs["conv"] == 8 * 8 * 4 * 3
    assert sum(macs.values()) == count_macs(content)


def test_layer_table_counts_a_loop_as_its_layers() -> None:
    inputs = L.Input((5, 3))
    x = L.SimpleRNN(6, return_sequences=True, name="first")(inputs)
    built = keras.Model(inputs, L.SimpleRNN(2, name="second")(x))
    content = convert(built, "float32").content
    macs = {row["name"]: row["macs"] for row in layer_table(built, content)}
    assert macs["first"] == 5 * (3 * 6 + 6 * 6)
    assert macs["second"] == 5 * (6 * 2 + 2 * 2)
    rows = operator_table(read(content), layer_paths(built))
    loops = [row for row in rows if row["name"] == "WHILE"]
    assert [row["layer"] for row in loops] == ["first", "second"]
    assert sum(row["parameters"] for row in rows) == parameters(content)
