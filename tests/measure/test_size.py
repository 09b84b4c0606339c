from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from shrink.base.measurement import reasons
from shrink.graph.macs import count_macs
from shrink.measure.layers import layer_paths, layer_table
from shrink.measure.size import (
    gzip_bytes,
    measure_sizes,
    operator_table,
    zeros_note,
)
from shrink.tflite.convert import convert
from shrink.tflite.model import read
from shrink.tflite.weights import parameters
from tests.tflite.toys import to_float32

L = keras.layers


@pytest.fixture(scope="module")
def model() -> keras.Model:
    inputs = L.Input((16,))
    model = keras.Model(inputs, L.Dense(8, name="dense")(L.BatchNormalization(name="norm")(inputs)))
    kernel = np.ones((16, 8), np.float32)
    kernel[:, :3] = 0
    model.get_layer("dense").set_weights([kernel, np.ones(8, np.float32)])
    return model


def mostly_zeros() -> keras.Model:
    inputs = L.Input((64,))
    model = keras.Model(inputs, L.Dense(64, name="dense")(inputs))
    kernel = np.zeros((64, 64), np.float32)
    kernel[::10] = 1
    model.get_layer("dense").set_weights([kernel, np.ones(64, np.float32)])
    return model


def test_measure_sizes_counts_all_weights_of_a_keras_model(
    model: keras.Model, tmp_path: Path
) -> None:
    saved, tflite = tmp_path / "model.keras", tmp_path / "model.tflite"
    model.save(saved)
    tflite.write_bytes(to_float32(model))
    sizes = measure_sizes(saved, tflite, model)
    assert reasons(sizes) == []
    assert {name: size.value for name, size in sizes.items()} == {
        "file_bytes": saved.stat().st_size,
        "gzip_bytes": len(gzip.compress(saved.read_bytes(), 9, mtime=0)),
        "tflite_bytes": tflite.stat().st_size,
        "parameters": 16 * 8 + 8 + 4 * 16,
        "nonzero_parameters": 16 * 5 + 8 + 2 * 16,  # gamma and variance are 1, beta and mean 0
        "macs": 16 * 8,
    }


def test_measure_sizes_counts_the_weights_of_the_artifact_when_there_is_no_model(
    model: keras.Model, tmp_path: Path
) -> None:
    tflite = tmp_path / "model.tflite"
    tflite.write_bytes(to_float32(keras.Sequential([L.Input((16,)), model.layers[-1]])))
    sizes = measure_sizes(tflite, tflite, None)
    assert sizes["parameters"].value == 16 * 8 + 8
    assert sizes["nonzero_parameters"].value == 16 * 5 + 8
    assert sizes["file_bytes"] == sizes["tflite_bytes"]


def test_gzip_bytes_of_a_folder_is_that_of_its_files_joined(tmp_path: Path) -> None:
    parts = [np.random.default_rng(i).bytes(3000) + bytes(5000) for i in range(2)]
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.bin").write_bytes(part)
    assert gzip_bytes(tmp_path) == len(gzip.compress(b"".join(parts), 9, mtime=0))


def test_zeros_note_says_that_the_file_stays_as_large(tmp_path: Path) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(to_float32(mostly_zeros()))
    (note,) = zeros_note(measure_sizes(file, file, None), file)
    assert note.startswith("88% of the parameters are zero, but the TFLite file still stores them")
    size = file.stat().st_size
    assert f"({size:,} bytes; {gzip_bytes(file):,} after gzip -9); `quantize" in note
    (tried,) = zeros_note(measure_sizes(file, file, None), file, tried=True)
    assert tried.endswith("after gzip -9)")  # nothing is left to try


@pytest.fixture(scope="module")
def nested() -> keras.Model:
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
def content(nested: keras.Model) -> bytes:
    return convert(nested, "float32").content


def test_layer_table_counts_by_closed_forms(nested: keras.Model, content: bytes) -> None:
    rows = {row.name: row for row in layer_table(nested, content)}
    convolution, dense = rows["inner/conv"], rows["dense"]
    assert convolution.macs == 8 * 8 * 4 * 3 * 3 * 3
    assert convolution.activation_bytes == 8 * 8 * 4 * 4
    assert (dense.macs, dense.parameters) == (8 * 8 * 4 * 10, 8 * 8 * 4 * 10 + 10)
    assert dense.sparsity == pytest.approx(0.25)
    assert (rows["flatten"].sparsity, rows["flatten"].macs) == (None, 0)


def test_layer_table_adds_up_to_the_model(nested: keras.Model, content: bytes) -> None:
    rows = layer_table(nested, content)
    assert sum(row.parameters for row in rows) == nested.count_params()
    assert sum(row.macs or 0 for row in rows) == count_macs(content)


def test_operator_table_adds_up_to_the_artifact(nested: keras.Model, content: bytes) -> None:
    rows = operator_table(read(content), ["conv", "norm", "relu", "flatten", "dense"])
    assert sum(row.macs or 0 for row in rows) == count_macs(content)
    assert sum(row.parameters for row in rows) == parameters(content)
    convolution = next(row for row in rows if row.name == "CONV_2D")
    assert (convolution.layer, convolution.weights) == ("conv", "float32")
    assert convolution.activation_bytes == 8 * 8 * 4 * np.dtype(np.float32).itemsize
    dense = next(row for row in rows if row.name == "FULLY_CONNECTED")
    assert dense.sparsity == pytest.approx(0.25)


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
    macs = {row.name: row.macs for row in layer_table(built, content)}
    assert macs["a/conv"] == 2 * 8 * 8 * 4 * 3 * 3 * 4
    assert macs["deep/b/conv"] == 8 * 8 * 4 * 4
    assert macs["a_1"] == 8 * 8 * 4 * 5 * 5 * 4
    assert macs["conv"] == 8 * 8 * 4 * 3
    assert sum(filter(None, macs.values())) == count_macs(content)


def test_layer_table_counts_a_loop_as_its_layers() -> None:
    inputs = L.Input((5, 3))
    x = L.SimpleRNN(6, return_sequences=True, name="first")(inputs)
    built = keras.Model(inputs, L.SimpleRNN(2, name="second")(x))
    content = convert(built, "float32").content
    macs = {row.name: row.macs for row in layer_table(built, content)}
    assert macs["first"] == 5 * (3 * 6 + 6 * 6)
    assert macs["second"] == 5 * (6 * 2 + 2 * 2)
    rows = operator_table(read(content), layer_paths(built))
    loops = [row for row in rows if row.name == "WHILE"]
    assert [row.layer for row in loops] == ["first", "second"]
    assert sum(row.parameters for row in rows) == parameters(content)
