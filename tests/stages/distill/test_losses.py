"""Distillation losses against closed forms in float64."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from shrink.stages.distill.losses import softened_kl


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(-1, keepdims=True))


@pytest.mark.parametrize("temperature", [1.0, 4.0, 20.0])
def test_softened_kl_equals_the_definition(temperature: float) -> None:
    rng = np.random.default_rng(0)
    student, teacher = rng.normal(size=(2, 16, 10)) * 5
    p, q = softmax(teacher / temperature), softmax(student / temperature)
    expected = temperature**2 * np.sum(p * np.log(p / q), axis=-1)
    actual = softened_kl(tf.constant(student), tf.constant(teacher), temperature)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-12)


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
