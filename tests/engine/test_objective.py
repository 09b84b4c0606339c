"""Losses and metrics, example by example, against numpy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.engine.objective import METRICS, SupervisedObjective

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(6, 7)).astype(np.float32)
LABELS = RANDOM.integers(0, 7, 6)
ONE_HOT = np.eye(7, dtype=np.float32)[LABELS]
FOLLOWED = (
    "sparse_categorical_crossentropy",
    "categorical_crossentropy",
    "binary_crossentropy",
    "mean_squared_error",
    "mean_absolute_error",
    "accuracy",
    "binary_accuracy",
    "top5_accuracy",
)
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
CROSS_ENTROPY = -np.log(PROBABILITIES[np.arange(6), LABELS])


def test_training_follows_the_metrics_that_are_means_over_batches() -> None:
    assert set(METRICS) == set(FOLLOWED)


@pytest.mark.parametrize(
    ("name", "y", "outputs", "from_logits", "expected"),
    [
        ("sparse_categorical_crossentropy", LABELS, LOGITS, True, CROSS_ENTROPY),
        ("sparse_categorical_crossentropy", LABELS[:, None], LOGITS, True, CROSS_ENTROPY),
        ("sparse_categorical_crossentropy", LABELS, PROBABILITIES, False, CROSS_ENTROPY),
        ("categorical_crossentropy", ONE_HOT, LOGITS, True, CROSS_ENTROPY),
        (
            "binary_crossentropy",
            LABELS % 2,
            LOGITS[:, :1],
            True,
            np.log1p(np.exp(-LOGITS[:, 0] * (2 * (LABELS % 2) - 1))),
        ),
        ("mean_squared_error", ONE_HOT, LOGITS, True, ((ONE_HOT - LOGITS) ** 2).mean(-1)),
        ("mean_absolute_error", LABELS, LOGITS[:, :1], True, np.abs(LABELS - LOGITS[:, 0])),
    ],
)
def test_loss_is_one_number_per_example(
    name: str, y: Any, outputs: Any, from_logits: bool, expected: Any
) -> None:
    objective = SupervisedObjective(name, from_logits)
    losses = objective.loss(tf.constant(y), tf.constant(outputs), None)
    np.testing.assert_allclose(losses, expected, rtol=2e-5)


def test_loss_is_float32_when_outputs_are_half_precision() -> None:
    objective = SupervisedObjective("sparse_categorical_crossentropy", from_logits=True)
    losses = objective.loss(tf.constant(LABELS), tf.constant(LOGITS, tf.float16), None)
    assert losses.dtype == tf.float32
    np.testing.assert_allclose(losses, CROSS_ENTROPY, atol=5e-3)


def test_loss_is_the_sum_over_outputs() -> None:
    objective = SupervisedObjective("sparse_categorical_crossentropy", from_logits=True)
    y, outputs = tf.constant(LABELS), tf.constant(LOGITS)
    losses = objective.loss((y, y), [outputs, outputs], None)
    np.testing.assert_allclose(losses, 2 * CROSS_ENTROPY, rtol=1e-5)


@pytest.mark.parametrize("y", [LABELS, LABELS[:, None], ONE_HOT])
def test_metric_accuracy_is_1_where_the_largest_output_is_the_label(y: Any) -> None:
    objective = SupervisedObjective("sparse_categorical_crossentropy", from_logits=True)
    hits = objective.metric("accuracy", tf.constant(y), tf.constant(LOGITS))
    np.testing.assert_array_equal(hits, LOGITS.argmax(-1) == LABELS)


def test_metric_accuracy_decides_for_the_first_of_equal_outputs() -> None:
    outputs = np.repeat(np.round(LOGITS).astype(np.float32), 7, axis=0)
    labels = np.tile(np.arange(7), len(LOGITS))
    outputs[:7] = 0.0
    objective = SupervisedObjective("sparse_categorical_crossentropy", from_logits=True)
    hits = objective.metric("accuracy", tf.constant(labels), tf.constant(outputs))
    np.testing.assert_array_equal(hits, outputs.argmax(-1) == labels)
    assert (outputs == outputs.max(-1, keepdims=True)).sum() > len(outputs)
    outputs[0, 3] = np.nan
    assert objective.metric("accuracy", tf.constant(labels), tf.constant(outputs))[0] == 0.0


def test_metric_top5_accuracy_breaks_ties_at_random() -> None:
    name, places = "top5_accuracy", 5
    outputs = np.round(LOGITS).astype(np.float32)
    outputs[0] = 0.0
    objective = SupervisedObjective("sparse_categorical_crossentropy", from_logits=True)
    hits = objective.metric(name, tf.constant(LABELS), tf.constant(outputs))
    orders = np.array(list(itertools.permutations(range(7))))  # the first of equals is taken
    best = np.argsort(-outputs[:, orders], axis=-1, kind="stable")[..., :places]
    chosen = np.take_along_axis(np.broadcast_to(orders, (6, *orders.shape)), best, -1)
    expected = (chosen == LABELS[:, None, None]).any(-1).mean(-1)
    np.testing.assert_allclose(hits, expected, atol=1e-6)
    assert float(hits[0]) == pytest.approx(places / 7)
    outputs[1, 3] = np.nan
    assert objective.metric(name, tf.constant(LABELS), tf.constant(outputs))[1] == 0.0


def test_metric_binary_accuracy_splits_logits_at_0() -> None:
    objective = SupervisedObjective("binary_crossentropy", from_logits=True)
    y = np.array([0, 1, 1, 0])
    outputs = np.array([[-1.0], [0.2], [-0.2], [3.0]], np.float32)
    hits = objective.metric("accuracy", tf.constant(y), tf.constant(outputs))
    np.testing.assert_array_equal(hits, [1, 1, 0, 0])


def test_loss_refuses_labels_that_do_not_match_the_outputs() -> None:
    objective = SupervisedObjective("mean_squared_error", from_logits=True)
    with pytest.raises(DataError, match="1 label arrays and the model 2 outputs"):
        objective.loss(tf.constant(LABELS), [tf.constant(LOGITS)] * 2, None)


def test_loss_is_the_weighted_sum_of_each_output_s_own_loss() -> None:
    names = ["sparse_categorical_crossentropy", "mean_absolute_error"]
    objective = SupervisedObjective(names, from_logits=True, weights=[1, 3])
    target = LOGITS[:, :1] + 0.5
    y = (tf.constant(LABELS), tf.constant(target))
    outputs = [tf.constant(LOGITS), tf.constant(LOGITS[:, :1])]
    losses = objective.loss(y, outputs, None)
    np.testing.assert_allclose(losses, CROSS_ENTROPY + 3 * 0.5, rtol=1e-5)
    error = objective.metric("mean_absolute_error", y, outputs)
    np.testing.assert_allclose(error, [0.5] * len(LABELS), rtol=1e-5)


def test_loss_leaves_out_masked_elements() -> None:
    objective = SupervisedObjective("mean_squared_error", from_logits=True)
    outputs = tf.constant(LOGITS[:, :, None])
    outputs._keras_mask = tf.constant(LOGITS > 0)
    losses = objective.loss(tf.zeros_like(outputs), outputs, None)
    np.testing.assert_allclose(losses, (LOGITS.clip(0) ** 2).mean(-1), rtol=1e-5)
