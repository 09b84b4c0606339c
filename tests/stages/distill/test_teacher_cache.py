"""A teacher that runs once for each example."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base import files
from shrink.base.errors import ResourceError
from shrink.base.types import Spec
from shrink.data.arrays import ArrayExamples
from shrink.stages.distill import teacher_cache
from shrink.stages.distill.objective import TeacherOutputs
from shrink.stages.distill.teacher_cache import (
    Rows,
    cache_key,
    model_digest,
    open_cache,
    shapes_of,
    write_cache,
)
from shrink.stages.distill.teaching import DistillationExamples

X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
EXAMPLES = ArrayExamples(X, np.arange(50) % 2, np.arange(50))
ROWS = Rows(((3,),))


class Teacher:
    """Doubles its input, counts the examples, and may fail after some batches."""

    def __init__(self, fails_after: int = 99) -> None:
        self.asked = 0
        self.left = fails_after

    def __call__(self, x: Any) -> TeacherOutputs:
        def count(x: np.ndarray) -> np.ndarray:
            if self.left == 0:
                raise RuntimeError("killed")
            self.left -= 1
            self.asked += len(x)
            return 2 * x

        return TeacherOutputs(
            (tf.ensure_shape(tf.numpy_function(count, [x], tf.float32), (None, 3)),)
        )


def write(folder: Path, teacher: Teacher, rows: Rows = ROWS) -> bool:
    return write_cache(folder, rows, EXAMPLES, 8, teacher)


def test_write_cache_asks_once_for_each_example(tmp_path: Path) -> None:
    teacher = Teacher()
    assert write(tmp_path / "key", teacher) is True
    assert write(tmp_path / "key", teacher) is False
    assert teacher.asked == 50
    np.testing.assert_array_equal(open_cache(tmp_path / "key", ROWS, 50), 2 * X)


def test_write_cache_goes_on_where_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher_cache, "_SAVE_EVERY_S", -1.0)
    with pytest.raises(tf.errors.OpError, match="killed"):
        write(tmp_path / "key", Teacher(fails_after=3))
    with (tmp_path / "key" / "rows.bin").open("ab") as torn:
        torn.write(b"half a row")
    second = Teacher()
    write(tmp_path / "key", second)
    assert second.asked == 50 - 3 * 8
    np.testing.assert_array_equal(open_cache(tmp_path / "key", ROWS, 50), 2 * X)


def test_write_cache_asks_again_when_the_rows_were_damaged(tmp_path: Path) -> None:
    write(tmp_path / "key", Teacher())
    content = bytearray((tmp_path / "key" / "rows.bin").read_bytes())
    content[7] ^= 1
    (tmp_path / "key" / "rows.bin").write_bytes(bytes(content))
    again = Teacher()
    assert write(tmp_path / "key", again) is True
    assert again.asked == 50


def test_write_cache_refuses_with_a_number_when_it_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(64_000_599))
    with pytest.raises(ResourceError, match=r"takes 600 bytes, and 599 are free"):
        write(tmp_path / "key", Teacher())
    assert not (tmp_path / "key" / "rows.bin").exists()


def test_taught_examples_give_each_its_own_row(tmp_path: Path) -> None:
    write(tmp_path / "key", Teacher())
    taught = DistillationExamples(EXAMPLES, ROWS, open_cache(tmp_path / "key", ROWS, 50))
    indices = np.array([31, 2, 2, 49])
    x, lesson = taught.load(tf.constant(indices))
    np.testing.assert_array_equal(lesson.cached, 2 * x.numpy())
    np.testing.assert_array_equal(lesson.labels, indices % 2)
    np.testing.assert_array_equal(taught.arrays(indices)[1].cached, 2 * X[indices])
    assert taught.target_spec.cached == Spec((3,), np.dtype(np.float32))


def test_model_digest_changes_with_a_single_weight() -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    before = model_digest(model)
    assert model_digest(model) == before
    model.layers[0].bias.assign([0.0, 1e-7])
    assert model_digest(model) != before
    assert cache_key({"a": 1, "b": [before]}) == cache_key({"b": [before], "a": 1})


def test_appending_cuts_what_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abcdef")
    with files.appending(tmp_path / "f", 2) as stream:
        stream.write(b"xy")
    assert (tmp_path / "f").read_bytes() == b"abxy"


RANDOM = np.random.default_rng(0)


def test_decode_gives_back_what_was_encoded_when_it_is_float32() -> None:
    rows = Rows(((3,), (2, 5)), ((4, 4, 2),))
    outputs = tuple(tf.constant(RANDOM.normal(size=(6, *s)), tf.float32) for s in ((3,), (2, 5)))
    taught = TeacherOutputs(outputs, (tf.constant(RANDOM.normal(size=(6, 4, 4, 2)), tf.float32),))
    stored = rows.encode(taught)
    assert stored.shape == (6, rows.columns) == (6, 3 + 10 + 32)
    for before, after in zip(
        tf.nest.flatten(taught), tf.nest.flatten(rows.decode(stored)), strict=True
    ):
        np.testing.assert_array_equal(before, after)


def test_encode_halves_the_bytes_when_it_is_float16() -> None:
    logits = tf.constant(RANDOM.normal(size=(6, 9)) * 10, tf.float32)
    rows = Rows(((9,),), cache_dtype="float16")
    assert rows.row_bytes == 18
    np.testing.assert_allclose(
        rows.decode(rows.encode(TeacherOutputs((logits,)))).outputs[0], logits, rtol=1e-3
    )


def test_shapes_of_unknown_sides_make_no_rows() -> None:
    sequence = keras.Input((None, 3))
    assert not Rows(shapes_of([sequence])).is_known
    assert Rows(shapes_of([keras.Input((4, 3))])).is_known
