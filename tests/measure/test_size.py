from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from shrink.measure.size import gzip_bytes, measure_sizes, zeros_note
from shrink.tflite import convert
from shrink.tflite.sparse import with_sparse_constants

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
    tflite.write_bytes(convert.to_float32(model))
    sizes, notes = measure_sizes(saved, tflite, model)
    assert notes == []
    assert sizes == {
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
    tflite.write_bytes(convert.to_float32(keras.Sequential([L.Input((16,)), model.layers[-1]])))
    sizes, _ = measure_sizes(tflite, tflite, None)
    assert sizes["parameters"] == 16 * 8 + 8
    assert sizes["nonzero_parameters"] == 16 * 5 + 8
    assert sizes["file_bytes"] == sizes["tflite_bytes"]


def test_gzip_bytes_of_a_folder_is_that_of_its_files_joined(tmp_path: Path) -> None:
    parts = [np.random.default_rng(i).bytes(3000) + bytes(5000) for i in range(2)]
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.bin").write_bytes(part)
    assert gzip_bytes(tmp_path) == len(gzip.compress(b"".join(parts), 9, mtime=0))


def test_zeros_note_says_that_the_file_stays_as_large(tmp_path: Path) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(convert.to_float32(mostly_zeros()))
    (note,) = zeros_note(measure_sizes(file, file, None)[0], file)
    assert note.startswith("88% of the parameters are zero, which does not shrink the TFLite file")
    size = file.stat().st_size
    assert f"{size:,} bytes, of which gzip -9 makes {gzip_bytes(file):,}" in note


def test_zeros_note_says_nothing_of_zeros_that_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(with_sparse_constants(convert.to_float32(mostly_zeros())))
    assert zeros_note(measure_sizes(file, file, None)[0], file) == []


def test_zeros_note_says_nothing_of_the_zeros_that_any_model_has(tmp_path: Path) -> None:
    size = {"parameters": 1000, "nonzero_parameters": 800, "tflite_bytes": 5000}
    assert zeros_note(size, tmp_path / "model.tflite") == []
