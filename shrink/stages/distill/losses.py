"""Distillation losses: pure functions of logits, one value per example."""

from __future__ import annotations

import tensorflow as tf


def softened_kl(student: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
    """Return T² · KL(softmax(teacher / T) ‖ softmax(student / T)).

    The factor T² keeps the gradient's size independent of T (Hinton, Vinyals & Dean 2015,
    "Distilling the Knowledge in a Neural Network", section 2.1).

    Args:
        student: logits, (n, classes).
        teacher: logits, (n, classes).
        temperature: T > 0.

    Returns:
        The loss of each example, (n,).
    """
    log_p = tf.nn.log_softmax(teacher / temperature)
    log_q = tf.nn.log_softmax(student / temperature)
    return temperature**2 * tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)
