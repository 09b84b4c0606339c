from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from shrink.base.errors import DataError
from shrink.data.sources import columns as large
from tests.data.opened import everything, opened

X = np.arange(240, dtype=np.float32).reshape(40, 3, 2)
Y = np.arange(40) % 4


def _save(folder: Path, storage: Any = None, **arrays: Any) -> Path:
    path = folder / "data.h5"
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **(storage or {}))
    return path


@pytest.mark.parametrize("storage", [{}, {"chunks": True}, {"compression": "gzip"}])
def test_open_dataset_reads_what_was_written(tmp_path: Path, storage: dict[str, Any]) -> None:
    x, y = everything(opened("hdf5", _save(tmp_path, storage, x=X, y=Y)))
    order = np.argsort(x[:, 0, 0])
    np.testing.assert_array_equal(x[order], X)
    np.testing.assert_array_equal(y[order], Y)


@pytest.mark.parametrize("storage", [{}, {"compression": "gzip"}])
def test_arrays_gathers_any_rows_of_a_large_file(
    tmp_path: Path, storage: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "LARGE_BYTES", 0)
    path = _save(tmp_path, storage, x_train=X, y_train=Y, x_test=X[:8], y_test=Y[:8])
    test = opened("hdf5", path).test
    rows = np.array([7, 0, 0, 3, 4, 7])
    x, y = test.arrays(rows)
    np.testing.assert_array_equal(x, X[rows])
    np.testing.assert_array_equal(y, Y[rows])


def test_arrays_names_the_value_that_is_not_finite_in_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "LARGE_BYTES", 0)
    broken = X.copy()
    broken[5, 2, 1] = np.nan
    path = _save(tmp_path, x_train=X, y_train=Y, x_test=broken[:8], y_test=Y[:8])
    test = opened("hdf5", path).test
    with pytest.raises(DataError, match=r"x_test\[5, 2, 1\] is nan") as raised:
        test.arrays(np.array([6, 5]))
    assert raised.value.subject == str(path)


def test_open_dataset_takes_names_in_groups(tmp_path: Path) -> None:
    path = _save(tmp_path, **{"a/in": X, "a/out": Y})
    assert opened("hdf5", path, inputs=["a/in"], targets=["a/out"]).num_classes == 4


def test_open_dataset_refuses_what_lies_in_other_files(tmp_path: Path) -> None:
    other = _save(tmp_path, x=X).rename(tmp_path / "other.h5")
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout(X.shape, X.dtype)
        layout[:] = h5py.VirtualSource(other, "x", X.shape)
        file.create_virtual_dataset("x", layout)
        file["y"] = Y
    with pytest.raises(DataError, match="x is stored in other files"):
        opened("hdf5", path)


def test_open_dataset_does_not_follow_links_to_other_files(tmp_path: Path) -> None:
    other = _save(tmp_path, x=X).rename(tmp_path / "other.h5")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(other), "x")
        file["y"] = Y
    with pytest.raises(DataError, match="no array x_train or x in this file; its arrays: y"):
        opened("hdf5", tmp_path / "data.h5")


@pytest.mark.parametrize("content", [b"", b"no HDF5", b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_open_dataset_raises_data_error_when_it_is_no_hdf5(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.h5").write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.h5: not an HDF5 file"):
        opened("hdf5", tmp_path / "broken.h5")


def test_open_dataset_reads_class_names(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"] = np.zeros((20, 2), np.float32)
        file.create_dataset("y", data=["wave", "circle"] * 10, dtype=h5py.string_dtype())
    dataset = opened("hdf5", tmp_path / "data.h5")
    assert dataset.class_names == ("circle", "wave")
