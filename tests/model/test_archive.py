from __future__ import annotations

import io
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import tf_keras as keras
from tf_keras.src.saving import saving_lib

from shrink.base.errors import ModelError
from shrink.model.archive import weights_where_they_lie
from shrink.model.load import load_model
from shrink.model.scan_files import WEIGHTS
from tests.tflite.toys import small_cnn


@pytest.mark.parametrize("compressed", [False, True])
def test_weights_are_those_that_keras_reads_by_itself(tmp_path: Path, compressed: bool) -> None:
    model, path = small_cnn(), tmp_path / "model.keras"
    model.save(path)
    if compressed:
        with zipfile.ZipFile(path) as reading:
            entries = {name: reading.read(name) for name in reading.namelist()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as writing:
            for name, content in entries.items():
                writing.writestr(name, content)
    own = saving_lib.H5IOStore
    with weights_where_they_lie(path):
        loaded = keras.models.load_model(path, compile=False)
    assert saving_lib.H5IOStore is own
    for a, b in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_load_model_refuses_weights_of_which_a_bit_is_another(tmp_path: Path) -> None:
    model, path = small_cnn(), tmp_path / "model.keras"
    model.save(path)
    content = bytearray(path.read_bytes())
    kernel = model.get_weights()[0].tobytes()
    content[content.index(kernel) + 3] ^= 1  # numbers alone: HDF5 itself sees nothing wrong
    path.write_bytes(content)
    with pytest.raises(ModelError, match="a part of it is damaged"):
        load_model(path)


def test_load_model_reads_what_keras_2_saved_on_windows(tmp_path: Path) -> None:
    model = keras.Sequential(
        [keras.Input((5, 2)), keras.layers.LSTM(3), keras.layers.Dense(2), keras.layers.Dense(1)]
    )
    model.save(path := tmp_path / "model.keras")
    with zipfile.ZipFile(path) as reading:
        entries = {name: reading.read(name) for name in reading.namelist()}
    flat = tmp_path / "flat.h5"
    with h5py.File(io.BytesIO(entries[WEIGHTS])) as file, h5py.File(flat, "w") as written:
        groups: list[str] = []
        file.visit(groups.append)
        for name in groups:
            if name == "vars" or name.endswith("/vars"):
                place = name.rpartition("/")[0].replace("/", "\\")
                file.copy(name, written.create_group(place) if place else written, "vars")
    with zipfile.ZipFile(path, "w") as writing:
        for name, content in (entries | {WEIGHTS: flat.read_bytes()}).items():
            writing.writestr(name, content)
    for a, b in zip(load_model(path).get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
