"""From a detector's outputs to detections, on the host: thresholds, non-maximum suppression.

The same arithmetic is used for every stage and every file: what is measured is what an application
gets that does the same. All of it is in float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shrink.base.types import Array
from shrink.detection.config import DecodeConfig
from shrink.detection.head import Head
from shrink.tflite.lazy import tf

LEFT, TOP, RIGHT, BOTTOM, SCORE, CLASS = range(6)
COLUMNS = 6
_MOST_BEFORE = 1_000
"""Candidates of a picture that go into non-maximum suppression: those of the highest scores."""


def decode(head: Head, outputs: Sequence[Array]) -> Array:
    """Return the detections of some pictures, float64 (n, max_detections, 6).

    Rows are left, top, right, bottom, score and class, best first; padding has class -1.

    Args:
        head: how outputs are read, and which candidates become detections.
        outputs: of the model, (n, ...) each.
    """
    candidates = head.read([tf.constant(one, tf.float64) for one in outputs])
    boxes = candidates.boxes.numpy()
    scores = head.probabilities(candidates).numpy()
    found = [select(*pair, head.settings) for pair in zip(boxes, scores, strict=True)]
    rows = np.zeros((len(found), head.settings.max_detections, COLUMNS))
    rows[:, :, CLASS] = -1
    for row, own in zip(rows, found, strict=True):
        row[: len(own)] = own
    return rows


def select(boxes: Array, scores: Array, selection: DecodeConfig) -> Array:
    """Return the detections of one picture, (k, 6), best first; equal scores in candidates' order.

    Args:
        boxes: (a, 4); one that is not finite is no box.
        scores: (a, classes); NaN is no score.
        selection: threshold, overlap and number of what is kept.
    """
    counts = np.isfinite(boxes).all(axis=1, keepdims=True)
    place, label = np.nonzero((scores >= selection.score_threshold) & counts)
    score = scores[place, label]
    order = np.argsort(-score, kind="stable")[:_MOST_BEFORE]
    place, label, score = place[order], label[order], score[order]
    kept = np.zeros(len(order), bool)
    for one in np.unique(label):
        own = np.flatnonzero(label == one)
        kept[own[suppress(boxes[place[own]], selection.nms_iou)]] = True
    chosen = np.flatnonzero(kept)[: selection.max_detections]
    return np.column_stack([boxes[place[chosen]], score[chosen], label[chosen]])


def suppress(boxes: Array, most_iou: float) -> Array:
    """Return which boxes stay, int64: each that overlaps no better one that stays by more.

    Args:
        boxes: (k, 4), best first.
        most_iou: intersection over union above which the worse box goes.
    """
    overlaps = iou(boxes, boxes) > most_iou
    stays = np.ones(len(boxes), bool)
    for index in range(len(boxes)):
        if stays[index]:
            stays[index + 1 :] &= ~overlaps[index, index + 1 :]
    return np.flatnonzero(stays)


def iou(one: Array, other: Array) -> Array:
    """Return intersections over unions of boxes (k, 4) and (m, 4), float64 (k, m); 0 of nothing."""
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = [np.prod(np.maximum(part[:, 2:] - part[:, :2], 0), axis=-1) for part in (one, other)]
    union = areas[0][:, None] + areas[1][None] - shared
    return np.asarray(np.where(union > 0, shared / np.where(union > 0, union, 1), 0.0))
