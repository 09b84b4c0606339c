from __future__ import annotations

import gzip
import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from shrink.base.errors import DataError
from shrink.data.dataset import Dataset
from shrink.data.pipeline import evaluation_batches, naming_bad_examples
from tests.data.opened import all_of, counts, everything, opened

X = np.random.default_rng(0).integers(0, 256, (30, 4, 3, 1), np.uint8)
Y = np.arange(30) % 3
_RAW: dict[str, Any] = {"type": "raw", "dtype": "uint8", "shape": [4, 3, 1]}
FEATURES: dict[str, Any] = {"x": _RAW, "y": {"type": "int64"}}


def _open(path: Path, **settings: Any) -> Dataset:
    return opened("tfrecord", path, **{"features": FEATURES, **settings})


def _feature(value: Any) -> tf.train.Feature:
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value, float | list):
        numbers = value if isinstance(value, list) else [value]
        return tf.train.Feature(float_list=tf.train.FloatList(value=numbers))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value)]))


def _write(path: Path, rows: Any = range(30), **features: Any) -> Path:
    """Write records of X and Y; `features` are functions of the row, in place of them."""
    made = {"x": lambda i: X[i].tobytes(), "y": lambda i: Y[i], **features}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            held = {name: _feature(make(row)) for name, make in made.items()}
            example = tf.train.Example(features=tf.train.Features(feature=held))
            writer.write(example.SerializeToString())
    return path


def _check_same(found: tuple[np.ndarray, np.ndarray]) -> None:
    """All of X and Y are there, in any order."""
    order = [next(i for i in range(30) if np.array_equal(X[i], x)) for x in found[0]]
    assert sorted(order) == list(range(30))
    np.testing.assert_array_equal(found[1], Y[order])


def test_open_dataset_reads_every_shard(tmp_path: Path) -> None:
    for start in (0, 10, 20):
        _write(tmp_path / "data" / f"part-{start}.tfrecord", range(start, start + 10))
    dataset = _open(tmp_path / "data")
    assert counts(dataset) == [21, 3, 6]
    assert dataset.num_classes == 3
    _check_same(everything(dataset))
    _check_same(everything(_open(tmp_path / "data" / "part-*.tfrecord")))


def test_open_dataset_takes_parts_from_names(tmp_path: Path) -> None:
    _write(tmp_path / "data" / "train-0.tfrecord", range(20))
    _write(tmp_path / "data" / "test-0.tfrecord", range(20, 30))
    test = _open(tmp_path / "data").test
    x, y = test.arrays(np.arange(10))
    np.testing.assert_array_equal(x, X[20:])
    np.testing.assert_array_equal(y, Y[20:])
    (fed,) = evaluation_batches(test, 20).as_numpy_iterator()
    np.testing.assert_array_equal(fed[0], x)


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["train-00000-of-00001.tfrec", "test-00000-of-00001.tfrec"], "*.tfrec"),
        (["digits-train-00000-of-00001", "digits-test-00000-of-00001"], "*-of-*"),
        (["train/a.tfrec", "test/b.tfrec"], "*/*.tfrec"),
        (["digits_train.tfrecords", "digits_test.tfrecords"], "digits_*"),
        (["d.train.TFRecord", "d.test.TFRecord"], "d.*"),
        (["training.tfrecord", "testing.tfrecord"], "*.tfrecord"),
    ],
)
@pytest.mark.parametrize("by_pattern", [False, True])
def test_names_decide_splits_in_folders_and_patterns(
    tmp_path: Path, names: list[str], pattern: str, by_pattern: bool
) -> None:
    _write(tmp_path / "data" / names[0], range(20))
    _write(tmp_path / "data" / names[1], range(20, 30))
    test = _open(tmp_path / "data" / pattern if by_pattern else tmp_path / "data").test
    np.testing.assert_array_equal(all_of(test)[0], X[20:])


def test_a_label_that_training_lacks_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "train.tfrecord")
    _write(tmp_path / "test.tfrecord", range(5), y=lambda i: i)
    with pytest.raises(DataError, match=r"y_test\[3\] is 3, out of range: .* 0 to 2"):
        _open(tmp_path)


def test_labels_that_are_too_large_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"the label {2**40} is out of range"):
        _open(_write(tmp_path / "a.tfrecord", y=lambda i: 2**40 if i == 3 else i % 3))


def test_many_classes_have_no_names(tmp_path: Path) -> None:
    dataset = _open(_write(tmp_path / "a.tfrecord", y=lambda i: 10**4 if i == 3 else i % 3))
    assert (dataset.class_names, dataset.num_classes) == ((), 10**4 + 1)


def test_a_pattern_of_one_split_is_divided(tmp_path: Path) -> None:
    _write(tmp_path / "data" / "train-0.tfrec", range(20))
    _write(tmp_path / "data" / "test-0.tfrec", range(20, 30))
    found = everything(_open(tmp_path / "data" / "train-*"))[0]
    assert {x.tobytes() for x in found} == {x.tobytes() for x in X[:20]}


@pytest.mark.parametrize("name", ["", "*.tfrec"])
def test_files_with_and_without_a_split_are_refused(tmp_path: Path, name: str) -> None:
    _write(tmp_path / "data" / "more.tfrec", range(20))
    _write(tmp_path / "data" / "test-0.tfrec", range(20, 30))
    with pytest.raises(DataError, match=r"more\.tfrec has no split"):
        _open(tmp_path / "data" / name)


def test_open_dataset_unpacks_compressed_files(tmp_path: Path) -> None:
    plain = _write(tmp_path / "plain")
    packed = tmp_path / "data" / "data.tfrecord.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    _check_same(everything(_open(packed)))


def test_open_dataset_decodes_images_and_real_targets(tmp_path: Path) -> None:
    def png(row: int) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(X[row, :, :, 0]).save(buffer, "PNG")
        return buffer.getvalue()

    path = _write(tmp_path / "data.tfrecord", picture=png, box=lambda i: [i / 2, float(i)])
    features = {
        "picture": {"type": "picture", "shape": [4, 3, 1]},
        "box": {"type": "float32", "shape": [2]},
    }
    dataset = _open(path, features=features, inputs=["picture"], targets=["box"])
    x, y = everything(dataset)
    rows = y[:, 1].astype(int)
    np.testing.assert_array_equal(x, X[rows])
    assert dataset.train.labels is None
    assert y.dtype == np.float32


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": None}, "the features of the records are not declared"),
        ({"features": {"x": FEATURES["x"]}}, "no feature y is declared; there are x"),
        ({"features": {**FEATURES, "x": {**FEATURES["x"], "shape": [5, 3, 1]}}}, "record 0"),
        ({"features": {"x": FEATURES["x"], "z": {"type": "int64"}}, "targets": ["z"]},
         r"data\.tfrecord: cannot be read: .*z"),
    ],
)  # fmt: skip
def test_open_dataset_raises_data_error_when_features_are_wrong(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    path = _write(tmp_path / "data.tfrecord")
    with pytest.raises(DataError, match=message):
        _open(path, **settings).train.arrays(np.arange(3))


def test_open_dataset_raises_data_error_when_a_file_is_cut_short(tmp_path: Path) -> None:
    path = _write(tmp_path / "data.tfrecord")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"data\.tfrecord: record 29 claims"):
        _open(path)


def test_open_dataset_raises_data_error_when_a_checksum_is_wrong(tmp_path: Path) -> None:
    path = _write(tmp_path / "data.tfrecord")
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"data\.tfrecord: cannot be read"):
        _open(path)


def test_naming_bad_examples_names_the_record(tmp_path: Path) -> None:
    path = _write(tmp_path / "data.tfrecord", x=lambda i: X[i].tobytes()[: 12 - (i == 7)])
    dataset = _open(path)
    parts = (dataset.train, dataset.validation, dataset.test)
    batches = itertools.chain(*(evaluation_batches(part, 8) for part in parts))
    with pytest.raises(DataError, match=r"data\.tfrecord: record 7 "), naming_bad_examples(*parts):
        list(batches)
