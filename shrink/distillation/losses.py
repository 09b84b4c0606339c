"""Losses of distillation: of outputs, and of features inside the models.

Add a loss as a function of a `Case`, or of the features, and one line in the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf


def softened_kl(student: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
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


def softened_bernoulli_kl(student: tf.Tensor, teacher: tf.Tensor, temperature: float) -> tf.Tensor:
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
    student: tf.Tensor, teacher: tf.Tensor, labels: tf.Tensor, temperature: float, beta: float
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


def _decoupled(logits: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return log P(target), log P(not target) and the log-probabilities given not target."""
    lowest = tf.cast(-1e9, logits.dtype)
    others = tf.where(target, lowest, logits)
    rest = tf.reduce_logsumexp(others, axis=-1)
    everything = tf.reduce_logsumexp(logits, axis=-1)
    own = tf.reduce_sum(tf.where(target, logits, tf.zeros_like(logits)), axis=-1)
    return own - everything, rest - everything, others - rest[..., None]


class Case(NamedTuple):
    """One output of student and teacher, with what a loss may need beside it."""

    student: tf.Tensor
    teacher: tf.Tensor
    labels: tf.Tensor
    temperature: float
    beta: float


SOFT_LOSSES: Mapping[str, Callable[[Case], tf.Tensor]] = {
    "kl": lambda c: softened_kl(c.student, c.teacher, c.temperature),
    "bernoulli_kl": lambda c: softened_bernoulli_kl(c.student, c.teacher, c.temperature),
    "logit_mse": lambda c: squared_error(c.student, c.teacher),
    "decoupled": lambda c: decoupled_kd(c.student, c.teacher, c.labels, c.temperature, c.beta),
    "output_mse": lambda c: squared_error(c.student, c.teacher),
}
"""The losses that a recipe can name, and bernoulli_kl, which is kl for outputs of yes or no."""


_EPSILON = 1e-12
_LEAST_SHARE = 1e-7
"""Below it a share of attention has no logarithm that float32 could tell from others."""


def hint(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Return the mean squared error of features (Romero et al. 2015, "FitNets", eq. 3).

    Args:
        student: (n, ..., channels), projected to the teacher's channels where they differ.
        teacher: (n, ..., channels).

    Returns:
        The loss of each example, (n,).
    """
    return tf.reduce_mean(_flat(tf.math.squared_difference(student, teacher)), axis=-1)


def attention(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Return the squared distance of normalised attention maps.

    A map is the mean over channels of squared features, divided by its L2 norm (Zagoruyko &
    Komodakis 2017, "Paying More Attention to Attention", eq. 2, with the square of the norm, as
    in the authors' code).

    Args:
        student: (n, ..., channels).
        teacher: (n, ..., channels), the same positions, any channels.

    Returns:
        The loss of each example, (n,).
    """
    difference = _attention_map(student) - _attention_map(teacher)
    return tf.reduce_sum(tf.square(difference), axis=-1)


def _attention_map(features: tf.Tensor) -> tf.Tensor:
    energy = _flat(tf.reduce_mean(tf.square(features), axis=-1))
    return tf.math.l2_normalize(energy, axis=-1, epsilon=_EPSILON)


def relational(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Return how far distances between the examples of a batch are from the teacher's.

    Huber loss of pairwise distances, each divided by their mean over the batch (Park et al. 2019,
    "Relational Knowledge Distillation", eqs. 5 to 8). What belongs to an example is its share:
    the mean over its partners. The batch is what is given, a micro-batch while training.

    Args:
        student: (n, ...), flattened.
        teacher: (n, ...), flattened; any size.

    Returns:
        The loss of each example, (n,).
    """
    s, t = _distances(_flat(student)), _distances(_flat(teacher))
    error = tf.abs(s - t)
    huber = tf.where(error <= 1, tf.square(error) / 2, error - 0.5)
    return tf.reduce_mean(huber, axis=-1)


def _distances(embeddings: tf.Tensor) -> tf.Tensor:
    """Return pairwise distances over their mean, (n, n); zero on the diagonal."""
    squared = tf.reduce_sum(tf.square(embeddings), axis=-1)
    products = tf.matmul(embeddings, embeddings, transpose_b=True)
    apart = squared[:, None] + squared[None, :] - 2 * products
    rows = tf.shape(embeddings)[0]
    apart = tf.where(tf.eye(rows, dtype=tf.bool), tf.zeros_like(apart), apart)
    # The square root has no gradient at 0.
    positive = apart > _EPSILON
    distances = tf.where(positive, tf.sqrt(tf.where(positive, apart, tf.ones_like(apart))), 0)
    pairs = tf.cast(tf.maximum(rows * (rows - 1), 1), embeddings.dtype)
    mean = tf.reduce_sum(distances) / pairs
    return distances / tf.maximum(mean, tf.cast(_EPSILON, embeddings.dtype))


def _flat(values: tf.Tensor) -> tf.Tensor:
    """Return (n, ...) as (n, everything else); (n,) becomes (n, 1)."""
    return tf.reshape(values, (tf.shape(values)[0], -1))


def attention_scores(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Return the KL divergence of what a student attends to from what its teacher does.

    Mean over the positions that ask (Wang et al. 2020, "MiniLM", eq. 5; there of each head, here of
    their mean, so that the student may have fewer).

    Args:
        student: shares that add up to 1 over the last axis, (n, ..., positions).
        teacher: of the same shape.

    Returns:
        The loss of each example, (n,).
    """
    least = tf.cast(_LEAST_SHARE, student.dtype)
    log_t, log_s = (tf.math.log(tf.maximum(shares, least)) for shares in (teacher, student))
    divergence = tf.reduce_sum(teacher * (log_t - log_s), axis=-1)
    return tf.reduce_mean(_flat(divergence), axis=-1)


FEATURE_LOSSES: Mapping[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "hint": hint,
    "attention": attention,
    "attention_scores": attention_scores,
    "relational": relational,
}
"""The losses of features that a recipe can name; all but `hint` and
`attention_scores` take features of any width."""
