"""The weights of a model file are counted without its optimizer's slots."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from shrink.model import weights_size
from shrink.model.weights_size import weights_bytes

KERNELS = 4 * (64 * 512 + 512 + 512 * 256 + 256)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> keras.Model:
    layers = [keras.layers.Dense(512), keras.layers.Dense(256)]
    model = keras.Sequential([keras.layers.Input((64,)), *layers])
    model.compile("adam", "mse")
    model.fit(np.zeros((4, 64), np.float32), np.zeros((4, 256), np.float32), verbose=0)
    return model


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_size, "_SMALL_BYTES", 0)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")
@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_the_slots_of_an_optimizer_are_no_weights(
    ending: str, trained: keras.Model, tmp_path: Path
) -> None:
    path = tmp_path / f"m.{ending}"
    trained.save(path)
    assert path.stat().st_size > 3 * KERNELS
    # The count of steps may stand beside the weights.
    assert KERNELS <= weights_bytes(path) <= KERNELS + 64


def test_what_cannot_be_read_counts_whole(trained: keras.Model, tmp_path: Path) -> None:
    path, packed = tmp_path / "m.keras", tmp_path / "packed.keras"
    trained.save(path)
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in source.namelist():
            new.writestr(name, source.read(name))
    assert weights_bytes(packed) == packed.stat().st_size
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert weights_bytes(path) == path.stat().st_size
    damaged = tmp_path / "m.h5"
    damaged.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert weights_bytes(damaged) == damaged.stat().st_size
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "a").write_bytes(bytes(7))
    assert weights_bytes(folder) == 7
    assert weights_bytes(tmp_path / "none.keras") == 0
