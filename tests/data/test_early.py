"""Mistakes in data that names and sizes show are told without TensorFlow."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shrink.base.errors import DataError
from shrink.data.config import DataConfig, source_of
from tests.data.opened import configured
from tests.run.fake_worker import FakeWorker, run


def _config(path: Path, **more: Any) -> DataConfig:
    return configured(path.suffix.removeprefix("."), path, **more)


def check_early(config: DataConfig) -> None:
    source_of(config.source).check(config)


X, Y = np.zeros((10, 2)), np.arange(10) % 2
NAN = np.where(np.arange(20).reshape(10, 2) == 15, np.nan, X)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_check_early_opens_arrays(tmp_path: Path, save: Any) -> None:
    """What is wrong with arrays is what opening them says: tests/data/sources/test_npz.py."""
    save(tmp_path / "x.npz", x=NAN, y=Y)
    with pytest.raises(DataError, match=r"x\[7, 1\] is nan"):
        check_early(_config(tmp_path / "x.npz"))


@pytest.mark.parametrize("names", [{"x": X}, {"z": X, "y": Y}])
def test_check_early_looks_for_the_arrays_of_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]
) -> None:
    monkeypatch.setattr("shrink.data.source_types._MOST_BYTES", {"npz": 0})
    np.savez(tmp_path / "x.npz", **names)
    with pytest.raises(DataError, match="no array"):
        check_early(_config(tmp_path / "x.npz"))
    np.savez(tmp_path / "x.npz", x=NAN, y=Y)
    check_early(_config(tmp_path / "x.npz"))  # values are left to the worker


@pytest.mark.parametrize(
    ("text", "keys", "words"),
    [
        (
            "a,b\n1,2\n",
            {},
            r"cannot infer the target column(?s:.*)name it in a recipe's data\.targets",
        ),
        ("5.1,1.4,0\n4.9,1.3,1\n", {}, "columns: 5.1, 1.4, 0(?s:.*)must name the columns"),
        ("a,y\n1,2\n", {"inputs": ["c"]}, "no column 'c'"),
        ("\xff", {}, "cannot be read as CSV(?s:.*)save the file as UTF-8"),
    ],
)
@pytest.mark.parametrize("most_bytes", [100, 0])
def test_check_early_refuses_headers_of_small_and_large_tables(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    keys: dict[str, Any],
    words: str,
    most_bytes: int,
) -> None:
    (tmp_path / "x.csv").write_bytes(text.encode("latin1"))
    monkeypatch.setattr("shrink.data.source_types._MOST_BYTES", {"csv": most_bytes})
    with pytest.raises(DataError, match=words):
        check_early(_config(tmp_path / "x.csv", **keys))


def test_check_early_leaves_rows_of_large_tables_to_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.csv").write_text("a,y\n1,0\nx,1\n")
    with pytest.raises(DataError, match="a in line 3 is 'x', not a finite number"):
        check_early(_config(tmp_path / "x.csv"))
    monkeypatch.setattr("shrink.data.source_types._MOST_BYTES", {"csv": 0})
    check_early(_config(tmp_path / "x.csv"))


def test_check_early_refuses_damaged_headers(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00\xff\xff{'shape':")
        archive.writestr("y.npy", b"\x93NUMPY\x03\x00\x02\x00{}")
    with pytest.raises(DataError, match="the header of x is damaged"):
        check_early(_config(tmp_path / "x.npz"))
    np.savez(tmp_path / "scalar.npz", x=np.array(1), y=np.asfortranarray(X))
    with pytest.raises(DataError, match="x is empty: its shape is"):
        check_early(_config(tmp_path / "scalar.npz"))


_MODULES = """
import sys
from shrink.data.config import DataConfig, source_of
heavy = lambda: {"numpy", "tensorflow", "tf_keras", "h5py"} & set(sys.modules)
print(heavy())
for source in ("npz", "csv"):
    source_of(source).check(DataConfig.model_validate({"source": source, "path": f"x.{source}"}))
print(heavy())
"""


def test_check_early_says_how_to_make_a_file_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "x.npz", x=X, y=Y)
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read every file
    with pytest.raises(DataError, match="no permission to read the file") as caught:
        check_early(_config(tmp_path / "x.npz"))
    assert caught.value.hint == f"chmod u+r {tmp_path / 'x.npz'}"


def test_check_early_names_the_source_of_folders(tmp_path: Path) -> None:
    (tmp_path / "x.npz").mkdir()
    with pytest.raises(DataError, match="this is not a file") as caught:
        check_early(_config(tmp_path / "x.npz"))
    assert caught.value.hint == "source: images takes folders"


def test_check_early_needs_no_tensorflow(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=X, y=Y)
    (tmp_path / "x.csv").write_text("a,y\n1,0\n2,1\n3,0\n4,1\n5,0\n")
    done = subprocess.run(
        [sys.executable, "-c", _MODULES], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n{'numpy'}\n"


def test_check_early_refuses_records_of_which_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").touch()
    with pytest.raises(DataError, match="the features of the records are not declared"):
        check_early(configured("tfrecord", tmp_path))


def test_run_starts_no_worker_and_makes_no_folder_for_data_that_cannot_do(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def build(): ...")
    np.savez(tmp_path / "x.npz", x=X)
    recipe = {
        "name": "r",
        "model": f"{tmp_path / 'm.py'}:build",
        "data": {"source": "npz", "path": str(tmp_path / "x.npz")},
        "stages": [{"train": {"epochs": 1}}],
    }
    worker = FakeWorker()
    with pytest.raises(DataError, match="no array y"):
        run(recipe, tmp_path / "out", worker)
    assert worker.jobs == []
    assert not (tmp_path / "out").exists()
