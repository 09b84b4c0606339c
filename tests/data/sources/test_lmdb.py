from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.fingerprint import fingerprint
from shrink.data.sources.lmdb import LmdbRecords
from tests.data.opened import configured, counts, everything, opened

X = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
Y = np.arange(30) % 3
FEATURES: dict[str, Any] = {"x": {"type": "float32", "shape": [5]}, "y": {"type": "int64"}}


def _write(path: Path, key: Callable[[int], str], labels: np.ndarray = Y) -> Path:
    with (
        lmdb.open(str(path), subdir=False, map_size=1 << 20) as environment,
        environment.begin(write=True) as transaction,
    ):
        transaction.put(b"__len__", b"30")
        for row in range(30):
            transaction.put(key(row).encode(), _example(row, int(labels[row])))
    return path


def _example(row: int, label: int) -> bytes:
    x = tf.train.Feature(float_list=tf.train.FloatList(value=X[row].tolist()))
    y = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    example = tf.train.Example(features=tf.train.Features(feature={"x": x, "y": y}))
    return bytes(example.SerializeToString())


def _config(path: Path) -> DataConfig:
    return configured("lmdb", path, features=FEATURES)


def _open(path: Path) -> Dataset:
    return opened("lmdb", path, features=FEATURES)


def _labels(dataset: Dataset) -> set[int]:
    return set(np.asarray(dataset.train.labels).tolist())


def test_pages_of_the_file_are_not_kept(tmp_path: Path) -> None:
    path, values = tmp_path / "data.lmdb", np.random.default_rng(0).bytes(40_000_000)
    with (
        lmdb.open(str(path), subdir=False, map_size=1 << 27) as environment,
        environment.begin(write=True) as transaction,
    ):
        for row in range(40):
            transaction.put(b"%02d" % row, values[row * 10**6 : (row + 1) * 10**6])
    environment = lmdb.open(str(path), subdir=False, readonly=True, lock=False)
    keys = np.array([b"%02d" % row for row in range(40)], object)
    records = LmdbRecords(path, environment, keys)
    before = _mapped_bytes()
    read = b"".join(
        b"".join(records.read(np.arange(start, start + 4))) for start in range(0, 40, 4)
    )
    assert read == values
    assert _mapped_bytes() - before < 10_000_000


def _mapped_bytes() -> int:
    """Return the resident pages of this process that are files', in bytes."""
    status = Path("/proc/self/status").read_text("ascii")
    return 1024 * int(status.partition("RssFile:")[2].split()[0])


def test_open_dataset_reads_every_value(tmp_path: Path) -> None:
    dataset = _open(_write(tmp_path / "data.lmdb", "{:05d}".format))
    assert counts(dataset) == [21, 3, 6]
    found, wanted = (
        {(row.tobytes(), int(label)) for row, label in zip(*pair, strict=True)}
        for pair in (everything(dataset), (X, Y))
    )
    assert found == wanted


def test_open_dataset_takes_parts_from_keys(tmp_path: Path) -> None:
    path = _write(tmp_path / "data.lmdb", lambda i: f"{'test' if i >= 20 else 'train'}/{i:03d}")
    test = _open(path).test
    x, y = test.arrays(np.arange(10))
    np.testing.assert_array_equal(x, X[20:])
    np.testing.assert_array_equal(y, Y[20:])


def test_labels_of_a_folder_follow_its_file(tmp_path: Path) -> None:
    for folder, label in (("data", 0), ("new", 1)):
        (tmp_path / folder).mkdir()
        _write(tmp_path / folder / "data.mdb", "{:05d}".format, Y ^ label)
    before = _labels(_open(tmp_path / "data"))
    shutil.copyfile(tmp_path / "new/data.mdb", tmp_path / "data/data.mdb")
    assert (before, _labels(_open(tmp_path / "data"))) == ({0, 1, 2}, {0, 1, 3})


def test_fingerprint_depends_on_the_content(tmp_path: Path) -> None:
    one = fingerprint(_config(_write(tmp_path / "a.lmdb", "{:05d}".format)))
    assert one != fingerprint(_config(_write(tmp_path / "b.lmdb", "{:04d}".format)))


def test_open_dataset_raises_data_error_when_keys_tell_no_part(tmp_path: Path) -> None:
    path = _write(tmp_path / "data.lmdb", lambda i: f"{'test/' if i >= 20 else ''}{i:03d}")
    with pytest.raises(DataError, match="its keys are of the splits all, test"):
        _open(path)


def test_open_dataset_raises_data_error_when_it_is_no_lmdb(tmp_path: Path) -> None:
    (tmp_path / "data.lmdb").write_bytes(b"no LMDB")
    with pytest.raises(DataError, match=r"data\.lmdb: not an LMDB file"):
        _open(tmp_path / "data.lmdb")
