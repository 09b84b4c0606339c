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
from shrink.data.augment import Augmentation
from shrink.data.config import AugmentConfig
from shrink.data.pipeline import training_batches
from shrink.data.views import View
from shrink.stages.distill import teacher_cache
from shrink.stages.distill.objective import TeacherOutputs
from shrink.stages.distill.teacher_cache import (
    Rows,
    cache_key,
    every_example,
    every_view,
    model_digest,
    open_cache,
    shapes_of,
    write_cache,
)
from shrink.stages.distill.teaching import DistillationExamples, DistillationViews

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
    np.testing.assert_array_equal(lesson.cached, 2 * x.numpy())
    np.testing.assert_array_equal(lesson.labels, indices % 2)
    np.testing.assert_array_equal(taught.arrays(indices)[1].cached, 2 * X[indices])
    assert taught.target_spec.cached == tf.TensorSpec((3,), tf.float32)


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
    images = np.random.default_rng(0).integers(0, 256, (21, 4, 4, 3), np.uint8)
    plain = ArrayExamples(images, np.arange(21) % 3, np.arange(21))
    config = AugmentConfig.model_validate({"flip": "both", "crop": 1, "mixup": 0.5})
    augmentation = Augmentation(config, plain.input_spec, 3)
    views = View(plain, augmentation=augmentation)
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
        np.testing.assert_allclose(lesson.cached, expected, rtol=1e-6)


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


def test_decode_keeps_top_logits_and_the_mass_of_the_others_when_it_is_topk() -> None:
    logits = tf.constant(RANDOM.normal(size=(5, 2, 40)) * 4, tf.float32)
    rows = Rows(((2, 40),), cache_dtype="topk", top_k=6)
    assert rows.row_bytes == 2 * 13 * 4
    back = rows.decode(rows.encode(TeacherOutputs((logits,)))).outputs[0].numpy()
    kept = np.argsort(logits.numpy(), -1)[..., -6:]
    take = np.take_along_axis
    np.testing.assert_array_equal(take(back, kept, -1), take(logits.numpy(), kept, -1))
    p, q = tf.nn.softmax(logits).numpy(), tf.nn.softmax(back).numpy()
    np.testing.assert_allclose(take(q, kept, -1), take(p, kept, -1), rtol=1e-4)
    others = np.sort(q, -1)[..., :-6]
    np.testing.assert_allclose(others, others[..., :1] * np.ones(34), rtol=1e-4)


@pytest.mark.parametrize(("classes", "columns"), [(13, 13), (14, 13)])
def test_columns_are_the_classes_when_topk_would_save_nothing(classes: int, columns: int) -> None:
    assert Rows(((classes,),), cache_dtype="topk", top_k=6).columns == columns


def test_shapes_of_unknown_sides_make_no_rows() -> None:
    sequence = keras.Input((None, 3))
    assert not Rows(shapes_of([sequence])).is_known
    assert Rows(shapes_of([keras.Input((4, 3))])).is_known
