"""What a step needs of the host's memory, by its model's file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tf_keras as keras

from shrink.run.host_needs import weights_bytes


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")
@pytest.mark.parametrize("ending", ["keras", "h5"])
def test_weights_bytes_leaves_out_the_optimizer(ending: str, tmp_path: Path) -> None:
    layers = [keras.layers.Dense(1024), keras.layers.Dense(1024)]
    model = keras.Sequential([keras.layers.Input((256,)), *layers])
    model.compile("adam", "mse")
    model.fit(np.zeros((4, 256), np.float32), np.zeros((4, 1024), np.float32), verbose=0)
    path = tmp_path / f"m.{ending}"
    model.save(path)
    kernels = 4 * model.count_params()
    assert path.stat().st_size > 3 * kernels
    assert kernels <= weights_bytes(path) <= 1.02 * kernels


def test_weights_bytes_of_what_cannot_be_read_is_its_size(tmp_path: Path) -> None:
    (tmp_path / "m.keras").write_bytes(b"no archive" * 500_000)
    assert weights_bytes(tmp_path / "m.keras") == 5_000_000
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "a").write_bytes(b"123")
    assert weights_bytes(tmp_path / "saved") == 3
    assert weights_bytes(tmp_path / "none.h5") == 0
