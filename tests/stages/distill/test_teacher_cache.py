"""A teacher that is asked once."""

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
from shrink.data.arrays import ArrayExamples
from shrink.data.augment.apply import Augmentation
from shrink.data.augment.config import AugmentConfig
from shrink.data.pipeline import training_batches
from shrink.data.view import AugmentedView
from shrink.stages.distill import teacher_cache
from shrink.stages.distill.distillation_examples import (
    DistillationExamples,
    DistillationViews,
    Rows,
)
from shrink.stages.distill.objective import TeacherOutputs
from shrink.stages.distill.teacher_cache import (
    cache_key,
    every_example,
    every_view,
    model_digest,
    open_cache,
    write_cache,
)

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
    return write_cache(folder, rows, every_example(EXAMPLES, 8), teacher)


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
    np.testing.assert_array_equal(lesson.taught, 2 * x.numpy())
    np.testing.assert_array_equal(lesson.labels, indices % 2)
    np.testing.assert_array_equal(taught.arrays(indices)[1].taught, 2 * X[indices])
    assert taught.target_spec.taught == tf.TensorSpec((3,), tf.float32)


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


def test_taught_views_bring_the_answers_to_each_epochs_view(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (21, 4, 4, 3), np.uint8)
    plain = ArrayExamples(pictures, np.arange(21) % 3, np.arange(21))
    config = AugmentConfig.model_validate({"flip": "both", "crop": 1, "mixup": 0.5})
    augmentation = Augmentation(config, plain.input_spec, 3)
    views = AugmentedView(plain, None, False, augmentation)
    rows = Rows(((48,),))

    def teach(x: Any) -> TeacherOutputs:
        return TeacherOutputs((tf.reshape(tf.cast(x, tf.float32), (-1, 48)) / 255,))

    teacher_inputs = every_view(views, 8, seed=5, epochs=2)
    assert teacher_inputs.total == 42
    assert [teacher_inputs.start(row) for row in (0, 7, 8, 20, 21, 30)] == [0, 0, 8, 16, 21, 29]
    write_cache(tmp_path / "key", rows, teacher_inputs, teach)
    taught = DistillationViews(views, rows, open_cache(tmp_path / "key", rows, 42))
    batches = training_batches(taught, global_batch_size=8, seed=5, first_step=2, last_step=6)
    for x, lesson in batches:
        expected = tf.reshape(tf.cast(x, tf.float32), (-1, 48)) / 255
        np.testing.assert_allclose(lesson.taught, expected, rtol=1e-6)
