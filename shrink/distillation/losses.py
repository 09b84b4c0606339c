"""Distillation losses of what models give: pure functions, one value per position.

Add a loss as a function of a `Case` and one line in the registry. Losses that look at features
inside the models are in `shrink.distillation.feature_losses`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf


def softened_kl(student: tf.Tensor, teacher: tf.Tensor, temperature: Any) -> tf.Tensor:
    """Return T² · KL(softmax(teacher / T) ‖ softmax(student / T)).

    The factor T² keeps the gradient's size independent of T (Hinton, Vinyals & Dean 2015,
    "Distilling the Knowledge in a Neural Network", section 2.1).

    Args:
        student: logits, (n, ..., classes).
        teacher: logits, (n, ..., classes).
        temperature: T > 0.

    Returns:
        The loss at each position, (n, ...).
    """
    log_p = tf.nn.log_softmax(teacher / temperature)
    log_q = tf.nn.log_softmax(student / temperature)
    return temperature**2 * tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)


def softened_bernoulli_kl(student: tf.Tensor, teacher: tf.Tensor, temperature: Any) -> tf.Tensor:
    """Return T² · the mean over outputs of KL(sigmoid(teacher / T) ‖ sigmoid(student / T)).

    For outputs that are yes or no each, such as several labels of one example.

    Args:
        student: logits, (n, ..., outputs).
        teacher: logits, (n, ..., outputs).
        temperature: T > 0.

    Returns:
        The loss at each position, (n, ...).
    """
    t, s = teacher / temperature, student / temperature
    p = tf.sigmoid(t)
    yes = tf.math.log_sigmoid(t) - tf.math.log_sigmoid(s)
    no = tf.math.log_sigmoid(-t) - tf.math.log_sigmoid(-s)
    return temperature**2 * tf.reduce_mean(p * yes + (1 - p) * no, axis=-1)


def squared_error(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Return the mean over the last axis of (student - teacher)².

    Of logits: Ba & Caruana 2014, "Do Deep Nets Really Need to be Deep?", eq. 1, and Kim et al.
    2021, "Comparing Kullback-Leibler Divergence and Mean Squared Error Loss in Knowledge
    Distillation", eq. 4, there as sums. Of other outputs: regression and autoencoders.

    Args:
        student: (n, ..., outputs).
        teacher: (n, ..., outputs).

    Returns:
        The loss at each position, (n, ...).
    """
    return tf.reduce_mean(tf.math.squared_difference(student, teacher), axis=-1)


def decoupled_kd(
    student: tf.Tensor, teacher: tf.Tensor, labels: tf.Tensor, temperature: Any, beta: float
) -> tf.Tensor:
    """Return T² · (TCKD + beta · NCKD), the decoupled loss of Zhao et al. 2022 (eq. 7).

    TCKD is the KL divergence of (target, all others), NCKD that among the classes that are not
    the target, each as softened by T. With beta = 1 - p_target of the teacher this is
    `softened_kl` ("Decoupled Knowledge Distillation", eq. 5).

    Args:
        student: logits, (n, ..., classes).
        teacher: logits, (n, ..., classes).
        labels: int32 or int64 (n, ...), the target classes.
        temperature: T > 0.
        beta: weight of NCKD.

    Returns:
        The loss at each position, (n, ...).
    """
    target = tf.one_hot(labels, teacher.shape[-1], on_value=True, off_value=False, dtype=tf.bool)
    p_target, p_rest, log_p = _decoupled(teacher / temperature, target)
    q_target, q_rest, log_q = _decoupled(student / temperature, target)
    tckd = tf.exp(p_target) * (p_target - q_target) + tf.exp(p_rest) * (p_rest - q_rest)
    among_others = tf.where(target, tf.zeros_like(log_p), tf.exp(log_p) * (log_p - log_q))
    return temperature**2 * (tckd + beta * tf.reduce_sum(among_others, axis=-1))


def _decoupled(logits: Any, target: Any) -> tuple[Any, Any, Any]:
    """Return log P(target), log P(not target) and the log-probabilities given not target."""
    lowest = tf.cast(-1e9, logits.dtype)
    others = tf.where(target, lowest, logits)
    rest = tf.reduce_logsumexp(others, axis=-1)
    everything = tf.reduce_logsumexp(logits, axis=-1)
    own = tf.reduce_sum(tf.where(target, logits, tf.zeros_like(logits)), axis=-1)
    return own - everything, rest - everything, others - rest[..., None]


class Case(NamedTuple):
    """One output of student and teacher, with what a loss may need beside it."""

    student: Any
    teacher: Any
    labels: Any
    temperature: Any
    beta: float


SOFT_LOSSES: Mapping[str, Callable[[Case], Any]] = {
    "kl": lambda c: softened_kl(c.student, c.teacher, c.temperature),
    "bernoulli_kl": lambda c: softened_bernoulli_kl(c.student, c.teacher, c.temperature),
    "logit_mse": lambda c: squared_error(c.student, c.teacher),
    "decoupled": lambda c: decoupled_kd(c.student, c.teacher, c.labels, c.temperature, c.beta),
    "output_mse": lambda c: squared_error(c.student, c.teacher),
}
"""The losses that a recipe can name, and bernoulli_kl, which is kl for outputs of yes or no."""
