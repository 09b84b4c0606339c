from __future__ import annotations

import numpy as np
import pytest
import tf_keras as keras

from shrink.graph.macs import count_macs
from shrink.measure.layers import layer_table, operator_table
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
    rows = operator_table(read(content)[0], ["conv", "norm", "relu", "flatten", "dense"])
    assert sum(row["macs"] for row in rows) == count_macs(content)
    assert sum(row["parameters"] for row in rows) == parameters(content)
    convolution = next(row for row in rows if row["name"] == "CONV_2D")
    assert (convolution["layer"], convolution["weights"]) == ("conv", "float32")
    assert convolution["activation_bytes"] == 8 * 8 * 4 * np.dtype(np.float32).itemsize
    dense = next(row for row in rows if row["name"] == "FULLY_CONNECTED")
    assert dense["sparsity"] == pytest.approx(0.25)
