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
from tests.run.fake_worker import FakeWorker, run


def _config(path: Path, **more: Any) -> DataConfig:
    source = path.suffix.removeprefix(".")
    return DataConfig.model_validate({"source": source, "path": str(path), **more})


def check_early(config: DataConfig) -> None:
    source_of(config.source).check(config)


X, Y = np.zeros((10, 2)), np.arange(10) % 2
NAN, INF = X.copy(), X.astype(np.float32)
NAN[7, 1], INF[3, 0] = np.nan, np.inf


@pytest.mark.parametrize(
    ("arrays", "keys", "words"),
    [
        ({"x": X, "y": Y[:9]}, {}, "x has 10 examples and y has 9"),
        ({"a": X, "b": X[:4], "y": Y}, {"inputs": ["a", "b"]}, "a has 10 examples and b has 4"),
        (
            {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y[:2]},
            {},
            "x_test has 10 examples and y_test has 2",
        ),
        (
            {"x_train": X, "y_train": Y, "x_test": X[:, :1], "y_test": Y},
            {},
            r"x_test has the shape \(1,\), one of x_train has \(2,\)",
        ),
        ({"x": X, "y": Y.astype(object)}, {}, r"y holds Python objects.*refused"),
        ({"x": NAN, "y": Y}, {}, r"x\[7, 1\] is nan"),
        ({"x": INF, "y": Y}, {}, r"x\[3, 0\] is inf"),
        ({"x": X, "y": NAN}, {}, r"y\[7, 1\] is nan"),
        ({"x": X, "y": Y - 1}, {}, r"y\[0\] is -1: a negative label.*number classes from 0"),
        ({"x": X, "y": Y * 0}, {}, "all labels in y are 0"),
        ({"x": X}, {}, "no array y in this file"),
        ({"z": X, "y": Y}, {}, "no array x_train or x in this file"),
        ({"x": X, "y": Y}, {"targets": ["u"]}, "no array u in this file"),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_check_early_refuses_arrays_that_do_not_belong_together(
    tmp_path: Path, save: Any, arrays: dict[str, Any], keys: dict[str, Any], words: str
) -> None:
    save(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=f"(?s){words}"):
        check_early(_config(tmp_path / "x.npz", **keys))


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
        ("a,y\n1,2\n\n1\n", {}, "line 4 has 1 values"),
        ("a,y\n", {}, "no rows"),
        ("a,y\n1,0\n,1\n", {}, "a in line 3 is '', not a finite number"),
        ("a,y\n1,0\nx,1\n", {}, "a in line 3 is 'x', not a finite number"),
        ("\xff", {}, "cannot be read as CSV"),
    ],
)
@pytest.mark.parametrize("small", [True, False])
def test_check_early_refuses_tables(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    keys: dict[str, Any],
    words: str,
    small: bool,
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode("latin1"))
    if not small:
        monkeypatch.setattr("shrink.data.source_types._MOST_BYTES", {"csv": 0})
        if "line" in words or "rows" in words:
            check_early(_config(path, **keys))  # left to the worker, which reads it all
            return
    with pytest.raises(DataError, match=words):
        check_early(_config(path, **keys))


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
    config = DataConfig.model_validate({"source": "tfrecord", "path": str(tmp_path)})
    with pytest.raises(DataError, match="the features of the records are not declared"):
        check_early(config)


def test_run_starts_no_worker_and_makes_no_folder_for_data_that_cannot_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
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
