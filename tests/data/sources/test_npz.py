from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.base.types import Spec
from shrink.data.sources import npz as npz_members
from tests.data.opened import counts, everything, opened


def _save(path: Path, compressed: bool = False, **arrays: Any) -> Path:
    target = path / "data.npz"
    (np.savez_compressed if compressed else np.savez)(target, **arrays)
    return target


def _given(n: int = 20, **replaced: Any) -> dict[str, Any]:
    """Arrays of a small, sound data set, some of them replaced."""
    x = np.arange(n * 6, dtype=np.float32).reshape(n, 3, 2)
    y = np.arange(n, dtype=np.uint8) % 4
    return {"x_train": x, "y_train": y, "x_test": x[:8] + 1, "y_test": y[:8], **replaced}


def _last_infinite(*shape: int) -> np.ndarray:
    array = np.zeros(shape, np.float32)
    array[-1, -1, -1] = np.inf
    return array


@pytest.mark.parametrize("compressed", [False, True])
def test_open_dataset_reads_the_given_test_split(tmp_path: Path, compressed: bool) -> None:
    arrays = _given()
    dataset = opened("npz", _save(tmp_path, compressed, **arrays))
    x, y = dataset.test.arrays(np.arange(8))
    assert np.array_equal(x, arrays["x_test"])
    assert np.array_equal(y, arrays["y_test"])
    assert counts(dataset) == [16, 4, 8]  # 10 % validate, but each of four classes
    assert dataset.num_classes == 4
    assert dataset.train.target_spec == Spec((), np.dtype(np.int64))


@pytest.mark.parametrize(
    "train",
    [np.zeros((20, 5), np.float32), np.zeros((20, 3, 2), np.uint8)],
    ids=["shape", "dtype"],
)
def test_only_tested_arrays_need_not_suit_the_others(tmp_path: Path, train: np.ndarray) -> None:
    sites: dict[str, Any] = {"site_train": np.zeros(20, int), "site_test": np.arange(8)}
    path = _save(tmp_path, **_given(x_train=train, **sites))
    with pytest.raises(DataError, match=r"x_test .* x_train"):
        opened("npz", path)
    dataset = opened("npz", path, test_split=1, slices=[{"column": "site"}])
    assert dataset.slice_values["test"]["site"].tolist() == [*range(8)]
    assert np.array_equal(dataset.test.arrays(np.arange(8))[0], _given()["x_test"])
    assert len(dataset.train) == 0
    assert [note for note in dataset.notes if note.startswith("the split train is not used: ")]


@pytest.mark.parametrize("name", ["validation", "val", "valid"])
def test_open_dataset_keeps_a_given_validation_split(tmp_path: Path, name: str) -> None:
    arrays = _given()
    own = {f"x_{name}": arrays["x_test"], f"y_{name}": arrays["y_test"]}
    assert counts(opened("npz", _save(tmp_path, **own, **arrays))) == [20, 8, 8]


def test_open_dataset_splits_x_and_y_by_fractions(tmp_path: Path) -> None:
    x = np.arange(100, dtype=np.int16)[:, None]
    dataset = opened("npz", _save(tmp_path, x=x, y=np.arange(100) % 2))
    assert counts(dataset) == [70, 10, 20]
    assert np.array_equal(np.sort(everything(dataset)[0][:, 0]), x[:, 0])


def test_read_arrays_maps_what_is_stored_uncompressed(tmp_path: Path) -> None:
    arrays = _given()
    read = npz_members.read_arrays(_save(tmp_path, **arrays), arrays)
    assert all(isinstance(array, np.memmap) for array in read.values())
    assert all(np.array_equal(read[name], arrays[name]) for name in arrays)


def test_read_arrays_maps_fortran_order_and_foreign_byte_order(tmp_path: Path) -> None:
    x = np.asfortranarray(np.arange(12, dtype=">f8").reshape(4, 3))
    dataset = opened("npz", _save(tmp_path, x_train=x, y_train=x, x_test=x, y_test=x))
    fed, target = dataset.test.arrays(np.arange(4))
    assert fed.dtype == target.dtype == np.dtype("float32")
    assert np.array_equal(fed, x)


def test_open_dataset_feeds_labels_of_shape_n_1_as_n(tmp_path: Path) -> None:
    arrays = _given()
    path = _save(tmp_path, **_given(y_train=arrays["y_train"][:, None]))
    assert opened("npz", path).train.target_spec.shape == ()


def test_open_dataset_keeps_one_hot_labels_as_real_targets(tmp_path: Path) -> None:
    x, one_hot = np.zeros((20, 2), np.uint8), np.eye(4, dtype=np.uint8)[np.arange(20) % 4]
    dataset = opened("npz", _save(tmp_path, x=x, y=one_hot))
    assert dataset.train.labels is None
    assert dataset.num_classes is None
    assert dataset.train.target_spec == Spec((4,), np.dtype(np.float32))
    assert dataset.train.input_spec == Spec((2,), np.dtype(np.uint8))


def test_open_dataset_feeds_real_targets_as_one_output(tmp_path: Path) -> None:
    dataset = opened("npz", _save(tmp_path, x=np.ones((20, 2)), y=np.linspace(0, 1, 20)))
    assert dataset.train.target_spec == Spec((1,), np.dtype(np.float32))
    assert dataset.notes == ()


def test_open_dataset_notes_labels_stored_as_floats(tmp_path: Path) -> None:
    dataset = opened("npz", _save(tmp_path, x=np.ones((20, 2)), y=np.arange(20.0) % 3))
    assert dataset.notes == (
        "y holds whole numbers stored as float64: they are labels if the loss takes labels, else "
        "real targets",
    )


def test_open_dataset_needs_no_targets_for_an_autoencoder(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(30, 5))
    dataset = opened("npz", _save(tmp_path, x=x), target="input")
    fed, target = dataset.train.arrays(np.arange(3))
    assert np.array_equal(fed, target)
    assert fed.dtype == np.float32


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"x_train": np.full((20, 3, 2), np.nan, np.float32)}, r"x_train\[0, 0, 0\] is nan"),
        ({"x_test": _last_infinite(8, 3, 2)}, r"x_test\[7, 2, 1\] is inf"),
        ({"x_train": np.full((20, 3, 2), 1e300)}, "not a finite float32"),
        ({"y_train": np.full(20, np.nan)}, r"y_train\[0\] is nan"),
        ({"y_train": np.arange(20) - 1}, r"y_train\[0\] is -1: a negative label"),
        ({"y_train": np.full(20, 2**40)}, "out of range label"),
        ({"y_test": np.arange(8) % 7}, r"y_test\[4\] is 4, out of range: .* 0 to 3"),
        ({"y_train": np.zeros(19, int)}, "x_train has 20 examples and y_train has 19"),
        ({"y_train": np.array(3)}, "x_train has 20 examples and y_train has 1"),
        ({"x_train": np.zeros((0, 3, 2)), "y_train": np.zeros(0, int)}, "x_train is empty"),
        ({"x_test": np.zeros((8, 2, 3), np.float32)}, r"x_test has the shape \(2, 3\)"),
        ({"x_test": np.zeros((8, 3, 2), np.uint8)}, "x_test is uint8 and x_train is float32"),
        ({"y_test": np.linspace(0, 1, 8)}, "y_test holds real targets .* y_train holds lab"),
        ({"x_train": np.zeros((20, 3, 2), complex)}, "x_train is of dtype complex128"),
        ({"y_train": np.array(["a"] * 20)}, "y_train is of dtype <U1"),
        ({"x_test": np.zeros((3, 3, 2), np.float32)}, "x_test has 3 examples and y_test has 8"),
        (
            {"y_train": np.full((20, 2), "1"), "y_test": np.full((8, 2), "1")},
            "must hold one text or number for each of 20 examples.*\n.*rows must be numbers",
        ),
    ],
)  # fmt: skip
def test_open_dataset_raises_data_error_when_arrays_are_wrong(
    tmp_path: Path, replaced: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        opened("npz", _save(tmp_path, **_given(**replaced)))
    assert caught.value.subject == str(tmp_path / "data.npz")


def test_open_dataset_raises_data_error_when_names_are_unknown(tmp_path: Path) -> None:
    path = _save(tmp_path, images_train=np.zeros(3), labels_train=np.zeros(3))
    with pytest.raises(
        DataError,
        match=r"no array x_train or x in this file; its arrays: images_train, labels_train\n"
        r".* yours, without _train and _test, in data\.inputs and data\.targets",
    ):
        opened("npz", path)


def test_open_dataset_raises_data_error_when_targets_are_missing(tmp_path: Path) -> None:
    arrays = _given()
    del arrays["y_test"]
    with pytest.raises(DataError, match=r"data\.npz: no array y_test"):
        opened("npz", _save(tmp_path, **arrays))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"inputs": ["a", "b"]}, "a has 10 examples and b has 4"),
        ({"inputs": ["a"], "targets": ["u"]}, "no array u in this file"),
    ],
)
def test_open_dataset_raises_data_error_when_named_arrays_are_wrong(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    path = _save(tmp_path, a=np.zeros((10, 2)), b=np.zeros((4, 2)), y=np.arange(10) % 2)
    with pytest.raises(DataError, match=message):
        opened("npz", path, **keys)


def test_open_dataset_raises_data_error_when_both_layouts_are_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.npz: both x and x_train"):
        opened("npz", _save(tmp_path, x=np.zeros(3), **_given()))


def test_open_dataset_refuses_objects_before_reading_them(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    path = _save(tmp_path, **_given(y_train=np.array([Bomb()] * 20, dtype=object)))
    with pytest.raises(DataError, match=r"data\.npz: y_train holds Python objects"):
        opened("npz", path)
    assert not (tmp_path / "exploded").exists()


def _zip(path: Path, **members: bytes) -> Path:
    target = path / "data.npz"
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return target


def _npy(array: np.ndarray, shape: tuple[int, ...] | None = None) -> bytes:
    """An array's bytes, under a header that may declare another shape."""
    stream = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(stream, header | {"shape": shape or array.shape})
    return stream.getvalue() + array.tobytes()


@pytest.mark.parametrize("shape", [(10**15, 2), (21, 2), (19, 2), (-20, 2)])
def test_open_dataset_raises_data_error_when_the_header_lies(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    x, y = np.zeros((20, 2)), np.arange(20)
    path = _zip(tmp_path, x=_npy(x, shape), y=_npy(y))
    with pytest.raises(DataError, match=r"data\.npz: x declares shape"):
        opened("npz", path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no array",
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"\x93NUMPY\x07\x00\x00\x00",
        b"\x93NUMPY\x01\x00\x05\x00[[[[\n",
        b"\x93NUMPY\x01\x00" + (9999).to_bytes(2, "little") + b"(" * 9999,
    ],
)
def test_open_dataset_raises_data_error_when_a_header_is_damaged(
    tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(DataError, match=r"data\.npz: the header of x is damaged"):
        opened("npz", _zip(tmp_path, x=content, y=_npy(np.arange(3))))


def test_open_dataset_raises_data_error_when_compressed_data_is_damaged(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 255, (200, 50)).astype(np.uint8)
    path = _save(tmp_path, compressed=True, x=x, y=np.arange(200) % 2)
    content = bytearray(path.read_bytes())
    content[5000:5100] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"data\.npz: x is damaged"):
        opened("npz", path)


def test_open_dataset_raises_data_error_when_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz_members, "available_memory_bytes", lambda: 100)
    with pytest.raises(DataError, match=r"data\.npz: the arrays take .*\n.*uncompressed"):
        opened("npz", _save(tmp_path, compressed=True, **_given()))
    assert opened("npz", _save(tmp_path, **_given())).num_classes == 4  # mapped: takes no memory


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"\x93NUMPY"])
def test_open_dataset_raises_data_error_when_it_is_no_npz(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.npz: not an \.npz file"):
        opened("npz", path)


def test_open_dataset_takes_several_inputs_and_targets_by_name(tmp_path: Path) -> None:
    numbers = np.arange(30)
    path = _save(
        tmp_path,
        left=np.tile(numbers[:, None], 2),
        right=np.tile(numbers[:, None], 3),
        even=numbers % 2,
        size=numbers / 30,
    )
    dataset = opened("npz", path, inputs=["right", "left"], targets=["size", "even"])
    (right, left), (size, even) = dataset.train.arrays(np.arange(5))
    assert (right.shape, left.shape) == ((5, 3), (5, 2))
    assert (size.dtype, even.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(even, left[:, 0] % 2)
    np.testing.assert_allclose(size[:, 0] * 30, left[:, 0], rtol=1e-6)
    loaded = dataset.train.load(tf.constant(np.arange(5)))
    for array, tensor in zip(tf.nest.flatten(loaded), (right, left, size, even), strict=True):
        np.testing.assert_array_equal(array, tensor)


def test_open_dataset_raises_data_error_when_there_is_a_single_label(tmp_path: Path) -> None:
    path = _save(tmp_path, x=np.zeros((20, 2)), y=np.full(20, 3))
    with pytest.raises(
        DataError, match="all labels in y are 3; a classifier needs at least two classes"
    ):
        opened("npz", path)
    assert len(opened("npz", path, target="input").train) == 14


@pytest.mark.parametrize("kind", [str, bytes])
def test_open_dataset_numbers_class_names_in_alphabetical_order(tmp_path: Path, kind: type) -> None:
    train: np.ndarray = np.array(["cat", "ant", "bee"] * 10).astype(kind)
    test: np.ndarray = np.array([["bee"], ["dog"]]).astype(kind)  # a class that training never sees
    x = np.zeros((30, 2), np.float32)
    path = _save(tmp_path, x_train=x, y_train=train, x_test=x[:2], y_test=test)
    dataset = opened("npz", path)
    assert dataset.class_names == ("ant", "bee", "cat", "dog")
    assert dataset.num_classes == 4
    assert np.asarray(dataset.test.labels).tolist() == [1, 3]
    assert any("class names" in note for note in dataset.notes)
    named = opened("npz", path, classes=["dog", "cat", "bee", "ant"])
    assert named.class_names == ("dog", "cat", "bee", "ant")
    assert np.asarray(named.test.labels).tolist() == [2, 0]
    with pytest.raises(DataError, match="'dog' is not in data"):
        opened("npz", path, classes=["ant", "bee", "cat"])


def test_open_dataset_reads_texts_of_whole_numbers_as_labels(tmp_path: Path) -> None:
    y = np.array([str(label) for label in range(11)] * 4)
    dataset = opened("npz", _save(tmp_path, x=np.zeros((44, 2), np.float32), y=y))
    assert dataset.num_classes == 11
    assert dataset.class_names[10] == "10"


def test_open_dataset_refuses_texts_that_are_no_utf_8(tmp_path: Path) -> None:
    y = np.array([b"\xff", b"a"] * 10)
    with pytest.raises(DataError, match="no UTF-8 text"):
        opened("npz", _save(tmp_path, x=np.zeros((20, 2), np.float32), y=y))
