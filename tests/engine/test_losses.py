"""Losses against tf-keras itself, Dice against its definition, and users' functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.base.losses import LOSSES, loss_of
from shrink.engine.losses import loss_values, user_loss_values
from shrink.engine.objective import (
    SupervisedObjective,
    Totals,
    count_valid,
    mask_ignored,
    weigh_masks,
)
from shrink.task.losses import loss_sums, without_ignored
from tests.forks import call

N, K = 6, 4
RANDOM = np.random.default_rng(3)
LOGITS = RANDOM.normal(size=(N, K)) * 2
SHARES = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
LABELS = RANDOM.integers(0, K, N)
ONE_HOT = np.eye(K)[LABELS]
YES = RANDOM.integers(0, 2, (N, K)).astype(np.float64)
REAL = RANDOM.normal(size=(N, K))
COUNTS = RANDOM.integers(0, 5, (N, K)).astype(np.float64)
SIGMOID = 1 / (1 + np.exp(-LOGITS))

CASES: list[tuple[str, Any, Any, bool, Any]] = [
    (
        "categorical_crossentropy(label_smoothing=0.1)",
        *(ONE_HOT, LOGITS, True),
        keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
    ),
    (
        "categorical_crossentropy(label_smoothing=0.1)",
        *(ONE_HOT, SHARES, False),
        keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
    ),
    (
        "binary_crossentropy(label_smoothing=0.2)",
        *(YES, LOGITS, True),
        keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.2),
    ),
    (
        "binary_focal_crossentropy(alpha=0.3, gamma=1.5, apply_class_balancing=true)",
        *(YES, LOGITS, True),
        keras.losses.BinaryFocalCrossentropy(True, 0.3, 1.5, from_logits=True),
    ),
    (
        "binary_focal_crossentropy(label_smoothing=0.1)",
        *(YES, SIGMOID, False),
        keras.losses.BinaryFocalCrossentropy(label_smoothing=0.1),
    ),
    (
        "categorical_focal_crossentropy(gamma=3)",
        *(ONE_HOT, LOGITS, True),
        keras.losses.CategoricalFocalCrossentropy(gamma=3.0, from_logits=True),
    ),
    (
        "categorical_focal_crossentropy(alpha=0.1 0.2 0.3 0.4, label_smoothing=0.1)",
        *(ONE_HOT, SHARES, False),
        keras.losses.CategoricalFocalCrossentropy([0.1, 0.2, 0.3, 0.4], label_smoothing=0.1),
    ),
    ("kl_divergence", SHARES[::-1].copy(), SHARES, False, keras.losses.KLDivergence()),
    ("hinge", 2 * YES - 1, LOGITS, True, keras.losses.Hinge()),
    ("hinge", YES, LOGITS, True, keras.losses.Hinge()),
    ("squared_hinge", YES, LOGITS, True, keras.losses.SquaredHinge()),
    ("categorical_hinge", ONE_HOT, LOGITS, True, keras.losses.CategoricalHinge()),
    ("huber(delta=0.5)", REAL, LOGITS, True, keras.losses.Huber(0.5)),
    ("log_cosh", REAL, LOGITS, True, keras.losses.LogCosh()),
    ("cosine_similarity", REAL, LOGITS, True, keras.losses.CosineSimilarity()),
    ("poisson", COUNTS, SHARES, True, keras.losses.Poisson()),
    (
        "mean_absolute_percentage_error",
        *(REAL, LOGITS, True),
        keras.losses.MeanAbsolutePercentageError(),
    ),
    (
        "mean_squared_logarithmic_error",
        *(COUNTS, LOGITS, True),
        keras.losses.MeanSquaredLogarithmicError(),
    ),
    ("mean_squared_error", REAL, LOGITS, True, keras.losses.MeanSquaredError()),
    ("mean_absolute_error", REAL, LOGITS, True, keras.losses.MeanAbsoluteError()),
]


def test_every_loss_is_compared_with_tf_keras() -> None:
    compared = {loss_of(case[0]).name for case in CASES}
    elsewhere = {"dice", "sparse_categorical_crossentropy"}  # the latter in test_objective.py
    assert set(LOSSES) - compared == elsewhere


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[3]}")
def test_loss_is_that_of_tf_keras(case: Any) -> None:
    key, y, outputs, from_logits, loss = case
    loss.reduction = keras.losses.Reduction.NONE
    before = keras.backend.floatx()
    keras.backend.set_floatx("float64")
    try:
        expected = np.asarray(loss(y, outputs))
    finally:
        keras.backend.set_floatx(before)
    found = loss_values(key, tf.constant(y), tf.constant(outputs), from_logits)
    assert found.dtype == tf.float64
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-9)
    sums = loss_sums(outputs, y, key, from_logits=from_logits)
    np.testing.assert_allclose(sums.values / sums.valid, expected, rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["categorical_focal_crossentropy", "categorical_hinge"])
def test_class_numbers_are_the_same_as_one_hot_labels(name: str) -> None:
    outputs = tf.constant(LOGITS)
    one = loss_values(name, tf.constant(LABELS), outputs, True)
    np.testing.assert_allclose(one, loss_values(name, tf.constant(ONE_HOT), outputs, True))
    sums = loss_sums(LOGITS, LABELS, name, from_logits=True)
    np.testing.assert_allclose(sums.values, one, rtol=1e-6)


def test_dice_is_1_minus_twice_what_is_shared_over_both() -> None:
    p = np.array([[[0.5], [1.0], [0.0]], [[0.0], [0.0], [0.0]]])
    y = np.array([[[1], [1], [0]], [[0], [0], [0]]])
    expected = [1 - (2 * 1.5 + 1) / (1.5 + 2 + 1), 0.0]
    found = loss_values("dice(of=labels)", tf.constant(y), tf.constant(p), False)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    sums = loss_sums(p, y, "dice(of=labels)", from_logits=False)
    np.testing.assert_allclose(sums.values, expected, rtol=1e-12)


def test_dice_of_classes_is_the_mean_over_classes_of_softmax_and_class_numbers() -> None:
    logits = RANDOM.normal(size=(3, 5, K))
    labels = RANDOM.integers(0, K, (3, 5))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    y = np.eye(K)[labels]
    expected = (1 - (2 * (p * y).sum(1) + 0.5) / (p.sum(1) + y.sum(1) + 0.5)).mean(-1)
    key = "dice(smooth=0.5, of=classes)"
    found = loss_values(key, tf.constant(labels), tf.constant(logits), True)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    sums = loss_sums(logits, labels, key, from_logits=True)
    np.testing.assert_allclose(sums.values, expected, rtol=1e-12)


def test_dice_counts_only_what_a_mask_leaves() -> None:
    logits = RANDOM.normal(size=(2, 5, 1))
    y = RANDOM.integers(0, 2, (2, 5, 1))
    mask = np.array([[1, 1, 0, 1, 0], [1, 0, 0, 0, 1]], bool)
    output = tf.constant(np.where(mask[..., None], 1 / (1 + np.exp(-logits)), np.inf))
    output._keras_mask = tf.constant(mask)
    found = loss_values("dice(of=labels)", tf.constant(y), output, False)
    sums = loss_sums(logits, y, "dice(of=labels)", from_logits=True, mask=mask)
    for row in range(2):
        p = 1 / (1 + np.exp(-logits[row, mask[row]]))
        t = y[row, mask[row]]
        expected = 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)
        assert float(found[row]) == pytest.approx(expected, rel=1e-9)
        assert sums.values[row] == pytest.approx(expected, rel=1e-12)


def test_ignored_class_counts_for_nothing_in_loss_and_metrics() -> None:
    key = "sparse_categorical_crossentropy(ignore_class=255)"
    logits = RANDOM.normal(size=(3, 5, K))
    labels = RANDOM.integers(0, K, (3, 5))
    labels[0, :4] = labels[2, 1] = 255
    counts = labels != 255
    log = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    own = -np.take_along_axis(log, np.where(counts, labels, 0)[..., None], -1)[..., 0]
    expected = own[counts].mean()
    objective = SupervisedObjective(key, from_logits=True)
    outputs, y = tf.constant(logits), tf.constant(labels)
    mask_ignored(objective, y, outputs)
    (valid,) = count_valid(outputs)
    assert int(valid) == counts.sum()
    weigh_masks(outputs, Totals(tf.constant(3, tf.int64), (valid,)))
    losses = objective.loss(y, outputs, None)
    assert float(tf.reduce_mean(losses)) == pytest.approx(expected, rel=1e-9)
    hits = objective.metric("accuracy", y, outputs)
    right = (logits.argmax(-1) == labels)[counts].mean()
    assert float(tf.reduce_mean(hits)) == pytest.approx(right, rel=1e-6)
    (kept,), (mask,) = without_ignored([key], [labels], [None])
    sums = loss_sums(logits, kept, key, from_logits=True, mask=mask)
    assert sums.values.sum() / sums.valid.sum() == pytest.approx(expected, rel=1e-12)


USERS = """
import tensorflow as tf

def weighted(y, p):
    return tf.where(y > 0, 3.0, 1.0) * tf.square(y - p)

def whole(y, p):
    return tf.reduce_mean(tf.square(y - p))

def short(y, p):
    return tf.square(y - p)[:1, 0]

def infinite(y, p):
    return tf.math.log(p - p)

def broken(y, p):
    return y.nothing

def text(y, p):
    return "0.5"

def numbers(y, p):
    return tf.gather(tf.nn.softmax(p), y, axis=-1, batch_dims=1)
"""


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "losses.py"
    path.write_text(USERS)
    return path


def test_user_loss_per_element_is_averaged_over_the_rest(users: Path) -> None:
    key = f"{users}:weighted(of=values)"
    expected = (np.where(REAL > 0, 3.0, 1.0) * (REAL - LOGITS) ** 2).mean(-1)
    y, outputs = tf.constant(REAL, tf.float32), tf.constant(LOGITS, tf.float32)
    np.testing.assert_allclose(loss_values(key, y, outputs, True), expected, rtol=1e-5)
    sums = loss_sums(LOGITS, REAL, key, from_logits=True)
    np.testing.assert_allclose(sums.values / sums.valid, expected, rtol=1e-5)
    found = user_loss_values(key, REAL, LOGITS, "training examples")
    np.testing.assert_allclose(found.mean(-1), expected, rtol=1e-5)


def test_user_loss_of_classes_gets_class_numbers(users: Path) -> None:
    key = f"{users}:numbers(of=classes)"
    sums = loss_sums(LOGITS, LABELS[:, None], key, from_logits=True)
    np.testing.assert_allclose(sums.values, SHARES[np.arange(N), LABELS], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("whole", "one number for the whole batch"),
        ("short", r"the shape \(1,\) for 6 examples"),
        ("infinite", "returned an infinite number for training examples"),
        ("broken", r"AttributeError: .*nothing.* \(line 17\)"),
        ("text", "string in place of a loss"),
    ],
)
def test_user_loss_that_is_none_is_refused(users: Path, name: str, complaint: str) -> None:
    with pytest.raises(StageError, match=complaint) as caught:
        user_loss_values(f"{users}:{name}(of=values)", REAL, LOGITS, "training examples")
    assert str(users) in str(caught.value.subject)


def test_losses_are_those_of_one_batch_over_two_replicas_in_micro_batches() -> None:
    found = call("tests.engine._losses", "differences", replicas=2, micro_batch_size=3)
    assert len(found) == 5
    for key, (apart, moved) in found.items():
        assert apart <= 1e-13, (key, apart)
        assert moved > 1e-2, key
