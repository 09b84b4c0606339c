"""The loss of a detector against loops in numpy that follow the definitions."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from shrink.data.boxes import box_rows, padded
from shrink.detection.config import DecodeConfig, DetectionLossConfig
from shrink.detection.head import Candidates, Head, head_of
from shrink.detection.loss import assign, detection_loss

RANDOM = np.random.default_rng(1)
GRID = head_of(DecodeConfig(name="grid", strides=(8,)), (32, 32, 1), [(4, 4, 7)], 3)
TWO = head_of(DecodeConfig(name="grid", strides=(4, 8)), (64, 64, 1), [(16, 16, 7), (8, 8, 7)], 3)
SSD = head_of(
    DecodeConfig(
        name="ssd", strides=(8,), anchors=(((12.0, 12.0), (20.0, 8.0)),), scores="softmax"
    ),
    (32, 32, 1),
    [(32, 4), (32, 4)],
    3,
)
YOLO = head_of(
    DecodeConfig(name="yolo", strides=(8,), anchors=(((12.0, 12.0),),)), (32, 32, 1), [(4, 4, 8)], 3
)
TARGETS = padded(
    [
        box_rows(np.array([[2, 3, 15, 14], [14, 12, 30, 30]]), np.array([0, 2])),
        box_rows(np.array([[9, 9, 11, 11], [0, 0, 32, 32]]), np.array([1, 2]), np.array([0, 1])),
        np.zeros((0, 7)),
    ],
    4,
)


def overlap(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Return IoU and GIoU of two boxes."""
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(w, 0) * max(h, 0)
    areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
    union = sum(areas) - shared
    around = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return shared / union, shared / union - (around - union) / around


def candidates_of(head: Head, objectness: bool = False) -> Candidates:
    assert head.priors is not None
    count = len(head.priors)
    low = RANDOM.uniform(0, 16, (3, count, 2))
    boxes = np.concatenate([low, low + RANDOM.uniform(2, 14, (3, count, 2))], axis=-1)
    logits = RANDOM.normal(size=(3, count, head.score_columns))
    extra = tf.constant(RANDOM.normal(size=(3, count))) if objectness else None
    return Candidates(tf.constant(boxes), tf.constant(logits), extra)


def by_overlap(head: Head, rows: np.ndarray, real: list[int]) -> tuple[list[set[int]], list[bool]]:
    assert head.priors is not None
    table = np.array([[overlap(p, rows[i])[0] for i in real] for p in head.priors])
    best = table.max(axis=1, initial=0.0)
    sets = [
        {real[j] for j in np.flatnonzero(row == most)} if most >= 0.5 else set[int]()
        for row, most in zip(table, best, strict=True)
    ]
    for j, i in enumerate(real):
        sets[int(np.argmax(table[:, j]))].add(i)
    return sets, [bool(most < 0.4) for most in best]


def by_centre(centres: np.ndarray, rows: np.ndarray, real: list[int]) -> list[set[int]]:
    sets: list[set[int]] = [set() for _ in centres]
    for i in real:
        middle = (rows[i][:2] + rows[i][2:4]) / 2
        near = [a for a, c in enumerate(centres) if np.all(np.abs(c - middle) <= 12)]
        own = [a for a in near if holds(rows[i], centres[a])]
        nearest = int(np.argmin(((centres - middle) ** 2).sum(axis=1)))
        for a in own or [nearest]:
            sets[a].add(i)
    return sets


def holds(box: np.ndarray, point: np.ndarray) -> bool:
    return bool(np.all(point > box[:2]) and np.all(point < box[2:4]))


def answers(head: Head, rows: np.ndarray) -> tuple[list[int], list[bool]]:
    """Return the box that each candidate answers for (-1: none), and whether it counts."""
    assert head.priors is not None
    real = [i for i, row in enumerate(rows) if row[4] >= 0 and not row[5]]
    crowds = [row for row in rows if row[4] >= 0 and row[5]]
    centres = (head.priors[:, :2] + head.priors[:, 2:]) / 2
    if head.settings.anchors:
        sets, counts = by_overlap(head, rows, real)
    else:
        sets, counts = by_centre(centres, rows, real), [True] * len(centres)
    counts = [
        own and not any(holds(row, c) for row in crowds)
        for own, c in zip(counts, centres, strict=True)
    ]
    chosen = [min(s, key=lambda i: rows[i][6]) if s else -1 for s in sets]
    return chosen, [c or i >= 0 for c, i in zip(counts, chosen, strict=True)]


def focal(wanted: float, logit: float, gamma: float, alpha: float) -> float:
    p = 1 / (1 + np.exp(-logit))
    right, weight = (p, alpha) if wanted else (1 - p, 1 - alpha)
    return -weight * (1 - right) ** gamma * np.log(right)


def expected_loss(head: Head, of: Candidates, example: int, weights: DetectionLossConfig) -> float:
    rows = TARGETS[example]
    chosen, counts = answers(head, rows)
    boxes, logits = of.boxes.numpy()[example], of.logits.numpy()[example]
    number = max(sum(i >= 0 for i in chosen), 1)
    labels = [int(rows[i][4]) if i >= 0 else -1 for i in chosen]
    apart = [1 - overlap(boxes[a], rows[i])[1] for a, i in enumerate(chosen) if i >= 0]
    total = weights.box_weight * sum(apart)
    if head.settings.scores == "softmax":
        return (total + softmax_part(logits, labels, counts, number)) / number
    for a, label in enumerate(labels):
        classes = [c == label for c in range(3)]
        if of.objectness is None and counts[a]:
            pairs = zip(classes, logits[a], strict=True)
            total += sum(focal(w, x, weights.gamma, weights.alpha) for w, x in pairs)
        elif of.objectness is not None:
            there = float(of.objectness[example, a])
            total += counts[a] * focal(label >= 0, there, weights.gamma, weights.alpha)
            signs = np.where(classes, 1, -1)
            total += (label >= 0) * float(np.log1p(np.exp(-signs * logits[a])).sum())
    return total / number


def softmax_part(logits: np.ndarray, labels: list[int], counts: list[bool], number: int) -> float:
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    positives = sum(-logs[a, label + 1] for a, label in enumerate(labels) if label >= 0)
    negatives = [-logs[a, 0] for a, label in enumerate(labels) if label < 0 and counts[a]]
    return float(positives + sum(sorted(negatives, reverse=True)[: 3 * number]))


@pytest.mark.parametrize(
    ("head", "objectness"), [(GRID, False), (SSD, False), (YOLO, True)], ids=["grid", "ssd", "yolo"]
)
def test_loss_is_that_of_the_definition(head: Head, objectness: bool) -> None:
    weights = DetectionLossConfig(gamma=1.5, alpha=0.3, box_weight=0.7)
    of = candidates_of(head, objectness)
    got = detection_loss(head, weights, tf.constant(TARGETS), of).numpy()
    expected = [expected_loss(head, of, example, weights) for example in range(3)]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9)


def test_loss_of_an_example_does_not_depend_on_the_others() -> None:
    of = candidates_of(GRID)
    together = detection_loss(GRID, DetectionLossConfig(), tf.constant(TARGETS), of).numpy()
    for row in range(3):
        one = Candidates(of.boxes[row : row + 1], of.logits[row : row + 1])
        own = detection_loss(GRID, DetectionLossConfig(), tf.constant(TARGETS[row : row + 1]), one)
        np.testing.assert_allclose(own[0], together[row], rtol=0, atol=1e-12)


def test_l1_is_the_mean_distance_of_edges_in_cells() -> None:
    rows = padded([box_rows(np.array([[0, 0, 8, 8]]), np.array([0]))])
    boxes = np.zeros((1, 16, 4))
    boxes[0, 0] = [1, 0, 8, 10]
    of = Candidates(tf.constant(boxes), tf.constant(np.full((1, 16, 3), -40.0)))
    plain = [
        float(
            detection_loss(
                GRID, DetectionLossConfig(box="l1", box_weight=w), tf.constant(rows), of
            )[0]
        )
        for w in (1.0, 3.0)
    ]
    assert plain[1] - plain[0] == pytest.approx(2 * (1 + 0 + 0 + 2) / 8 / 4, abs=1e-9)


def test_levels_answer_for_boxes_of_their_size() -> None:
    rows = padded([box_rows(np.array([[4, 4, 24, 24], [2, 2, 62, 60]]), np.array([0, 1]))])
    assigned = assign(TWO, tf.constant(rows, tf.float64))
    positive = assigned.positive.numpy()[0]
    box, levels = assigned.box.numpy()[0], TWO.levels
    assert levels is not None
    assert set(box[positive & (levels == 0)]) == {0}
    assert set(box[positive & (levels == 1)]) == {1}


def test_perfect_boxes_and_scores_cost_nothing() -> None:
    chosen, _ = answers(GRID, TARGETS[0])
    boxes = np.array([TARGETS[0][i][:4] if i >= 0 else [0, 0, 1, 1] for i in chosen], float)
    logits = np.full((16, 3), -50.0)
    for a, i in enumerate(chosen):
        if i >= 0:
            logits[a, int(TARGETS[0][i][4])] = 50
    of = Candidates(tf.constant(boxes[None]), tf.constant(logits[None]))
    loss = detection_loss(GRID, DetectionLossConfig(), tf.constant(TARGETS[:1]), of)
    assert float(loss[0]) == pytest.approx(0, abs=1e-12)
