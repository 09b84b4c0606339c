"""Arrays in memory become the .npz file that source `npz` reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shrink.api.arrays import written
from shrink.base.errors import DataError

X = np.arange(24, dtype=np.float32).reshape(6, 2, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path))
    return tmp_path


def batches(x: Any = X, y: Any = Y, size: int = 4) -> Any:
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size)


FORMS: dict[str, tuple[Callable[[], object], set[str], dict[str, list[str]]]] = {
    "a pair": (lambda: (X, Y), {"x", "y"}, {}),
    "lists": (lambda: (X.tolist(), Y.tolist()), {"x", "y"}, {}),
    "tensors": (lambda: (tf.constant(X), tf.constant(Y)), {"x", "y"}, {}),
    "load_data": (
        lambda: ((X, Y), (X[:2], Y[:2])),
        {"x_train", "y_train", "x_test", "y_test"},
        {},
    ),
    "splits": (
        lambda: {"train": (X, Y), "validation": (X, Y), "test": None},
        {"x_train", "y_train", "x_validation", "y_validation"},
        {},
    ),
    "names": (lambda: {"x_train": X, "y_train": Y, "hour_train": Y}, set(), {}),
    "several inputs": (
        lambda: ({"a": X, "b": Y}, {"left": Y}),
        {"a", "b", "left"},
        {"inputs": ["a", "b"], "targets": ["left"]},
    ),
    "a data set": (batches, {"x", "y"}, {}),
    "data sets": (
        lambda: {"train": batches(), "test": batches(size=3)},
        {"x_train", "y_train", "x_test", "y_test"},
        {},
    ),
    "a data set of mappings": (
        lambda: batches({"a": X, "b": Y}, Y),
        {"a", "b", "y"},
        {"inputs": ["a", "b"]},
    ),
    "inputs alone": (lambda: X, {"x"}, {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_data_are_written_by_name(form: str) -> None:
    make, names, keys = FORMS[form]
    path, found = written(make())
    with np.load(path) as arrays:
        assert set(arrays) == (names or {"x_train", "y_train", "hour_train"})
        for name in arrays:
            whole = X if name.startswith(("x", "a")) else Y
            expected = whole[:2] if form == "load_data" and name.endswith("_test") else whole
            np.testing.assert_array_equal(arrays[name], expected)
    assert found == keys


def test_equal_content_is_one_file_however_it_came(store: Path) -> None:
    first, _ = written((X, Y))
    others = [(X[::-1][::-1], Y.copy()), batches(), (np.asfortranarray(X), Y), (tf.constant(X), Y)]
    assert {written(one)[0] for one in others} == {first}
    assert first.parent.parent == store / "inputs"
    assert written((X, Y + 1))[0] != first
    assert written((X.astype(np.float64), Y))[0] != first
    assert written({"x": X.reshape(6, 4), "y": Y})[0] != first
    stamp = first.stat().st_mtime_ns
    assert written((X, Y))[0].stat().st_mtime_ns == stamp


def test_a_file_is_the_one_that_numpy_writes(tmp_path: Path) -> None:
    path, _ = written((X, Y))
    np.savez(tmp_path / "numpy.npz", x=X, y=Y)
    with np.load(tmp_path / "numpy.npz") as expected, np.load(path) as found:
        assert {k: v.dtype for k, v in found.items()} == {k: v.dtype for k, v in expected.items()}


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a typo": (lambda: {"trian": (X, Y)}, "trian"),
    "no split": (lambda: {"test": None}, "the data has no split"),
    "an unknown split": (lambda: {"train": (X, Y), "tset": (X, Y)}, "splits are train"),
    "a number": (lambda: 3, "a int is not a supported kind of data"),
    "objects": (lambda: (np.array([object()] * 6), Y), "x holds object"),
    "ragged": (lambda: ([[1], [2, 3]], Y), "x is not an array"),
    "Keras's list of inputs": (
        lambda: ([X, np.zeros((len(X), 3))], Y),
        r"x is not an array: a list of different shapes.*\n.*x = {'image': a, 'age': b}",
    ),
    "triples": (lambda: {"train": (X, Y, Y)}, "no pair"),
    "single examples": (lambda: tf.data.Dataset.from_tensor_slices((X, Y)), "dataset.batch"),
    "one-hot examples": (
        lambda: tf.data.Dataset.from_tensor_slices((X, np.eye(3)[Y])),
        "dataset.batch",
    ),
    "weights": (lambda: tf.data.Dataset.from_tensors((X, Y, Y)), "3 parts"),
    "no end": (lambda: batches().repeat(), "is infinite"),
    "nothing": (lambda: batches().take(0), "is empty"),
    "other shapes": (
        lambda: batches().map(lambda x, y: (x[:, : tf.shape(x)[0] // 2], y)),
        "examples of x differ",
    ),
    "ragged tensors": (
        lambda: tf.data.Dataset.from_tensors((tf.ragged.constant([[1], [2, 3]]), Y)),
        "examples of x differ|is not an array|not dense|x holds",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_data_is_refused_by_name(what: str) -> None:
    make, told = WRONG[what]
    with pytest.raises(DataError, match=told):
        written(make())
