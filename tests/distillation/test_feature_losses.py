"""Losses of features against closed forms in float64."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from shrink.distillation.losses import attention, hint, relational

RANDOM = np.random.default_rng(0)


def test_hint_is_the_mean_squared_error_of_an_example() -> None:
    student, teacher = RANDOM.normal(size=(2, 3, 4, 5))
    expected = ((student - teacher) ** 2).mean(axis=(1, 2))
    np.testing.assert_allclose(hint(tf.constant(student), tf.constant(teacher)), expected)


def test_attention_compares_normalised_maps_of_models_of_different_width() -> None:
    student, teacher = RANDOM.normal(size=(3, 4, 4, 5)), RANDOM.normal(size=(3, 4, 4, 9))
    maps = [(x**2).mean(-1).reshape(3, -1) for x in (student, teacher)]
    unit = [m / np.linalg.norm(m, axis=1, keepdims=True) for m in maps]
    expected = np.linalg.norm(unit[0] - unit[1], axis=1) ** 2
    np.testing.assert_allclose(attention(tf.constant(student), tf.constant(teacher)), expected)
    scaled = attention(tf.constant(7 * teacher), tf.constant(teacher))
    np.testing.assert_allclose(scaled, 0, atol=1e-12)


def test_relational_compares_distances_over_their_mean() -> None:
    student, teacher = RANDOM.normal(size=(6, 4)), RANDOM.normal(size=(6, 11)) * 5
    apart = [np.linalg.norm(x[:, None] - x[None], axis=-1) for x in (student, teacher)]
    s, t = (d / d[~np.eye(6, dtype=bool)].mean() for d in apart)
    error = np.abs(s - t)
    expected = np.where(error <= 1, error**2 / 2, error - 0.5).mean(axis=1)
    actual = relational(tf.constant(student), tf.constant(teacher))
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_relational_has_finite_gradients_when_examples_coincide() -> None:
    same = tf.Variable(np.ones((3, 4)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(relational(same, tf.constant(RANDOM.normal(size=(3, 4)))))
    assert np.isfinite(tape.gradient(loss, same).numpy()).all()
