"""What a student is trained on, example by example."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from shrink.distillation.losses import SOFT_LOSSES, softened_kl
from shrink.engine.objective import SupervisedObjective
from shrink.stages.distill.config import LOSSES, DistillConfig
from shrink.stages.distill.objective import (
    DistillationLoss,
    DistillationObjective,
    DistillationTargets,
    TeacherOutputs,
)
from shrink.stages.distill.run import distillation_loss_of

RANDOM = np.random.default_rng(0)
STUDENT, TEACHER = (tf.constant(x, tf.float32) for x in RANDOM.normal(size=(2, 6, 4)))
LABELS = tf.constant(RANDOM.integers(0, 4, 6))
HARD = SupervisedObjective("sparse_categorical_crossentropy", from_logits=True)


def test_losses_are_those_that_a_recipe_can_name() -> None:
    assert {*SOFT_LOSSES, "auto"} - {"bernoulli_kl"} == set(LOSSES)


def test_loss_weighs_labels_and_teacher() -> None:
    objective = DistillationObjective(None, HARD, DistillationLoss(temperature=3.0, alpha=0.25))
    hard, soft = HARD.loss(LABELS, STUDENT, None), softened_kl(STUDENT, TEACHER, 3.0)
    loss = objective.loss(LABELS, STUDENT, TeacherOutputs((TEACHER,)))
    np.testing.assert_allclose(loss, 0.25 * hard + 0.75 * soft, rtol=1e-6)


def test_loss_is_the_same_when_the_teacher_was_asked_before() -> None:
    live = DistillationObjective(lambda x: TeacherOutputs((TEACHER,)), HARD, DistillationLoss())
    cached = DistillationObjective(
        None, HARD, DistillationLoss(), decode=lambda stored: TeacherOutputs((stored,))
    )
    assert cached.targets(STUDENT) is None
    lesson = DistillationTargets(LABELS, TEACHER)
    expected = live.loss(LABELS, STUDENT, live.targets(STUDENT))
    np.testing.assert_array_equal(cached.loss(lesson, STUDENT, None), expected)
    np.testing.assert_array_equal(
        cached.metric("accuracy", lesson, STUDENT), live.metric("accuracy", LABELS, STUDENT)
    )


def test_loss_weighs_the_teacher_as_the_labels_of_each_output() -> None:
    losses = ("sparse_categorical_crossentropy", "mean_squared_error")
    loss = distillation_loss_of(DistillConfig(temperature=3.0), losses, "distill", (2.0, 0.5))
    hard = SupervisedObjective(losses, (True, True), (2.0, 0.5))
    objective = DistillationObjective(None, hard, loss, outputs=2)
    values, others, true = RANDOM.normal(size=(3, 6, 3)).astype(np.float32)
    found = objective.loss(
        (LABELS, tf.constant(true)),
        [STUDENT, tf.constant(values)],
        TeacherOutputs((TEACHER, tf.constant(others))),
    )

    def log_softmax(x: np.ndarray) -> np.ndarray:
        return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))

    p, q = (log_softmax(np.asarray(x, np.float64) / 3) for x in (TEACHER, STUDENT))
    soft = (9 * (np.exp(p) * (p - q)).sum(axis=-1), ((values - others) ** 2).mean(axis=-1))
    labels = -log_softmax(np.asarray(STUDENT, np.float64))[np.arange(6), LABELS.numpy()]
    of_labels = (labels, ((values - true) ** 2).mean(axis=-1))
    expected = sum(
        w * (0.1 * a + 0.9 * b) for w, a, b in zip((2.0, 0.5), of_labels, soft, strict=True)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_loss_adds_features_that_follow_the_outputs() -> None:
    distillation_loss = DistillationLoss(feature_loss="hint", feature_weight=2.0)
    objective = DistillationObjective(None, HARD, distillation_loss)
    own, other = (tf.constant(x, tf.float32) for x in RANDOM.normal(size=(2, 6, 5)))
    plain = DistillationObjective(None, HARD, DistillationLoss())
    extra = 2.0 * tf.reduce_mean((own - other) ** 2, axis=-1)
    loss = objective.loss(LABELS, [STUDENT, own], TeacherOutputs((TEACHER,), (other,)))
    expected = plain.loss(LABELS, STUDENT, TeacherOutputs((TEACHER,))) + extra
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_array_equal(
        objective.validation_loss(LABELS, [STUDENT, own]), HARD.loss(LABELS, STUDENT, None)
    )


def test_loss_is_one_number_per_example_when_there_are_positions() -> None:
    student, teacher = (tf.constant(x) for x in RANDOM.normal(size=(2, 3, 4, 5)))
    hard = SupervisedObjective("mean_squared_error", from_logits=True)
    objective = DistillationObjective(None, hard, DistillationLoss(temperature=2.0, alpha=0.0))
    loss = objective.loss(student, student, TeacherOutputs((teacher,)))
    expected = softened_kl(student, teacher, 2.0).numpy().mean(axis=1)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
