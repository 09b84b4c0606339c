"""What a teacher gives, as rows and back."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.stages.distill.distillation_examples import Rows, shapes_of
from shrink.stages.distill.objective import TeacherOutputs

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
