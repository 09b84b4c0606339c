"""What a detector loses against its teacher, against loops in numpy that follow the definition."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from shrink.detection.config import DecodeConfig
from shrink.detection.head import Head, head_of
from shrink.detection.teaching import teacher_loss
from tests.detection.test_loss import overlap

RANDOM = np.random.default_rng(6)
ANCHORS = (((12.0, 12.0), (20.0, 8.0)),)
HEADS: dict[str, Head] = {
    "grid": head_of(DecodeConfig(name="grid", strides=(8,)), (32, 32, 1), [(4, 4, 7)], 3),
    "yolo": head_of(
        DecodeConfig(name="yolo", strides=(8,), anchors=ANCHORS), (32, 32, 1), [(4, 4, 16)], 3
    ),
    "ssd": head_of(
        DecodeConfig(name="ssd", strides=(8,), anchors=ANCHORS, scores="softmax"),
        (32, 32, 1),
        [(32, 4), (32, 4)],
        3,
    ),
}


def raw(head: Head) -> list[tf.Tensor]:
    shapes = [[3, *(size or 1 for size in shape)] for shape in head.outputs]
    return [tf.constant(RANDOM.normal(size=shape)) for shape in shapes]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def bernoulli(s: float, t: float) -> float:
    p, q = sigmoid(np.array(t)), sigmoid(np.array(s))
    return float(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))


def by_definition(
    head: Head, student: list[tf.Tensor], teacher: list[tf.Tensor], temperature: float
) -> list[float]:
    s, t = head.read(student), head.read(teacher)
    p = head.probabilities(t).numpy().max(-1)
    losses = []
    for i in range(3):
        total = 0.0
        for a in range(p.shape[1]):
            own, other = (one.logits.numpy()[i, a] / temperature for one in (s, t))
            if head.settings.scores == "softmax":
                u, v = (np.exp(one) / np.exp(one).sum() for one in (other, own))
                scores = float((u * np.log(u / v)).sum())
            else:
                scores = sum(map(bernoulli, own, other))
            if s.objectness is not None and t.objectness is not None:
                there = (one[i, a].numpy() / temperature for one in (s.objectness, t.objectness))
                scores = bernoulli(*there) + p[i, a] * scores
            giou = overlap(s.boxes.numpy()[i, a], t.boxes.numpy()[i, a])[1]
            total += temperature**2 * scores + 2.5 * p[i, a] * (1 - giou)
        losses.append(total / max(p[i].sum(), 1.0))
    return losses


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_loss_follows_its_definition(kind: str, temperature: float) -> None:
    head = HEADS[kind]
    student, teacher = raw(head), raw(head)
    found = teacher_loss(head, 2.5, student, teacher, temperature)
    expected = by_definition(head, student, teacher, temperature)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", HEADS)
def test_a_student_like_its_teacher_loses_nothing_and_no_gradient_reaches_the_teacher(
    kind: str,
) -> None:
    head = HEADS[kind]
    same = raw(head)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(same)
        loss = teacher_loss(head, 1.0, same, [tf.identity(one) for one in same], 2.0)
    np.testing.assert_allclose(loss, np.zeros(3), atol=1e-12)
    student, teacher = raw(head), raw(head)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([*student, *teacher])
        loss = teacher_loss(head, 1.0, student, teacher, 2.0)
    assert all(one is None for one in tape.gradient(loss, teacher))
    assert all(np.abs(one).max() > 0 for one in tape.gradient(loss, student))


def test_a_box_of_the_teacher_that_is_not_finite_leaves_finite_gradients() -> None:
    head = HEADS["yolo"]
    student, teacher = raw(head), [one.numpy() for one in raw(head)]
    teacher[0][0, 1, 1, 2] = 1e4  # exp overflows
    student_tensor = [tf.constant(one) for one in student]
    with tf.GradientTape() as tape:
        tape.watch(student_tensor)
        loss = teacher_loss(head, 1.0, student_tensor, [tf.constant(one) for one in teacher], 1.0)
    assert np.isfinite(loss).all()
    assert all(np.isfinite(one).all() for one in tape.gradient(loss, student_tensor))
