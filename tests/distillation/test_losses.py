"""Distillation losses, of features too, against closed forms in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from shrink.distillation.losses import (
    attention,
    attention_scores,
    decoupled_kd,
    hint,
    relational,
    softened_bernoulli_kl,
    softened_kl,
    squared_error,
)

RANDOM = np.random.default_rng(0)


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.asarray(np.sum(p * np.log(p / q), axis=-1))


@pytest.mark.parametrize("temperature", [1.0, 4.0, 20.0])
def test_softened_kl_equals_the_definition(temperature: float) -> None:
    rng = np.random.default_rng(0)
    student, teacher = rng.normal(size=(2, 16, 10)) * 5
    p, q = softmax(teacher / temperature), softmax(student / temperature)
    actual = softened_kl(tf.constant(student), tf.constant(teacher), temperature)
    np.testing.assert_allclose(actual.numpy(), temperature**2 * kl(p, q), rtol=1e-12)


def test_softened_kl_has_the_published_gradient() -> None:
    # Hinton et al. 2015, equation 2: d/dz = (q - p) / T for the unscaled loss, so T (q - p) here.
    rng = np.random.default_rng(1)
    student, teacher = rng.normal(size=(2, 4, 6)) * 3
    z = tf.Variable(student)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(softened_kl(z, tf.constant(teacher), 5.0))
    expected = 5.0 * (softmax(student / 5.0) - softmax(teacher / 5.0))
    np.testing.assert_allclose(tape.gradient(loss, z).numpy(), expected, rtol=1e-10)


def test_softened_kl_is_zero_for_equal_logits_and_finite_for_extreme_ones() -> None:
    logits = tf.constant([[0.0, 1.0, -2.0]], tf.float64)
    assert softened_kl(logits, logits + 3.0, 4.0).numpy()[0] == pytest.approx(0.0, abs=1e-12)
    extreme = softened_kl(tf.constant([[1e4, 0.0]]), tf.constant([[0.0, 1e4]]), 1.0)
    assert np.isfinite(extreme.numpy()).all()


def test_softened_bernoulli_kl_is_the_kl_of_yes_and_no() -> None:
    rng = np.random.default_rng(2)
    student, teacher = rng.normal(size=(2, 8, 3)) * 4
    p, q = (1 / (1 + np.exp(-z / 3.0)) for z in (teacher, student))
    expected = 9.0 * kl(np.stack([p, 1 - p], -1), np.stack([q, 1 - q], -1)).mean(-1)
    actual = softened_bernoulli_kl(tf.constant(student), tf.constant(teacher), 3.0)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-10)


def test_squared_error_is_the_mean_over_outputs() -> None:
    student, teacher = np.random.default_rng(3).normal(size=(2, 5, 7))
    actual = squared_error(tf.constant(student), tf.constant(teacher))
    np.testing.assert_allclose(actual.numpy(), ((student - teacher) ** 2).mean(-1), rtol=1e-12)


def test_decoupled_kd_is_target_and_non_target_divergence() -> None:
    rng = np.random.default_rng(4)
    student, teacher = rng.normal(size=(2, 12, 6)) * 4
    labels = rng.integers(0, 6, 12)
    rows = np.arange(12)
    p, q = softmax(teacher / 4.0), softmax(student / 4.0)
    binary = [np.stack([r[rows, labels], 1 - r[rows, labels]], -1) for r in (p, q)]
    others = np.array([[c for c in range(6) if c != label] for label in labels])
    among = [np.take_along_axis(z / 4.0, others, 1) for z in (teacher, student)]
    expected = 16.0 * (kl(*binary) + 2.5 * kl(softmax(among[0]), softmax(among[1])))
    actual = decoupled_kd(tf.constant(student), tf.constant(teacher), tf.constant(labels), 4.0, 2.5)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9)


def test_decoupled_kd_is_softened_kl_when_beta_is_the_teachers_doubt() -> None:
    # Zhao et al. 2022, equation 5.
    rng = np.random.default_rng(5)
    student, teacher = (tf.constant(rng.normal(size=(1, 6)) * 2) for _ in range(2))
    doubt = 1 - softmax(teacher.numpy() / 3.0)[0, 2]
    decoupled = decoupled_kd(student, teacher, tf.constant([2]), 3.0, doubt)
    np.testing.assert_allclose(decoupled, softened_kl(student, teacher, 3.0), rtol=1e-10)


def test_decoupled_kd_has_finite_gradients_when_the_teacher_is_certain() -> None:
    z = tf.Variable([[30.0, -80.0, 2.0]])
    with tf.GradientTape() as tape:
        loss = decoupled_kd(z, tf.constant([[200.0, 0.0, 1.0]]), tf.constant([0]), 1.0, 8.0)
    assert np.isfinite(tape.gradient(loss, z).numpy()).all()


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


def test_attention_scores_is_the_mean_divergence_over_positions() -> None:
    rng = np.random.default_rng(4)
    student, teacher = softmax(rng.normal(size=(2, 3, 5, 7)) * 3)
    found = attention_scores(tf.constant(student), tf.constant(teacher))
    np.testing.assert_allclose(found.numpy(), kl(teacher, student).mean(axis=-1), rtol=1e-9)
    none = np.eye(7)[None, :5]
    assert np.isfinite(attention_scores(tf.constant(none), tf.constant(none[..., ::-1])).numpy())
