"""The loss of a detector: which candidate answers for which box, and how wrong it is.

Assignment looks at boxes and priors alone, and each example is normalised by its own number of
candidates that answer for a box: the mean over examples is the same however a batch is split.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shrink.data import boxes as columns
from shrink.detection.config import DetectionLossConfig
from shrink.detection.head import Candidates, Head
from shrink.tflite.lazy import tf

_POSITIVE, _NEGATIVE = 0.5, 0.4
"""Overlaps of an anchor with a box from which on, and below which, it is one thing or the other
(Lin et al. 2017, RetinaNet, section 4)."""
_RADIUS = 1.5
"""Strides around a box's centre within which cells answer for it (centre sampling of FCOS)."""
_SIDES = 8.0
"""A level answers for boxes whose longer side is up to this many strides, as in FCOS."""
_NEGATIVES = 3
"""Of a softmax, negatives that count for each positive: those of the largest loss (SSD)."""
_FAR = 1e9


class Assignment(NamedTuple):
    """Which box each candidate answers for.

    Attributes:
        box: int32 (n, a), a row of the targets; meaningless where it answers for none.
        positive: bool (n, a), whether it answers for a box.
        counts: bool (n, a), whether it should say anything: false near crowds, and for anchors
            that overlap a box neither much nor little.
    """

    box: tf.Tensor
    positive: tf.Tensor
    counts: tf.Tensor


def detection_loss(
    head: Head, weights: DetectionLossConfig, targets: tf.Tensor, candidates: Candidates
) -> tf.Tensor:
    """Return the loss of each example, (n,).

    Args:
        head: has priors.
        weights: of its parts.
        targets: boxes (n, g, 7), see `shrink.data.boxes`.
        candidates: what the model says.
    """
    dtype = candidates.boxes.dtype
    targets = tf.cast(targets, dtype)
    assigned = assign(head, targets)
    own = tf.gather(targets, assigned.box, batch_dims=1)  # (n, a, 7)
    positive = tf.cast(assigned.positive, dtype)
    number = tf.maximum(tf.reduce_sum(positive, axis=1), 1.0)
    classes = tf.cast(tf.maximum(own[..., columns.CLASS], 0), tf.int32)
    scores = _score_loss(head, weights, candidates, assigned, classes)
    apart = _box_loss(head, weights.box, candidates.boxes, own[..., :4])
    total = scores + weights.box_weight * tf.reduce_sum(apart * positive, axis=1)
    return total / number


def assign(head: Head, targets: tf.Tensor) -> Assignment:
    """Return which box each candidate answers for; targets are (n, g, 7)."""
    crowd = (targets[..., columns.CROWD] > 0) & (targets[..., columns.CLASS] >= 0)
    there = (targets[..., columns.CLASS] >= 0) & ~crowd
    rule = _by_overlap if head.settings.anchors else _by_centre
    answers, counts = rule(head, targets, there)
    in_crowd = _holds(head, targets) & crowd[:, None]
    # Of several boxes the smallest: a larger one has other candidates.
    area = tf.where(answers, targets[:, None, :, columns.AREA], _FAR)
    positive = tf.reduce_any(answers, axis=2)
    counts = (counts & ~tf.reduce_any(in_crowd, axis=2)) | positive
    return Assignment(tf.argmin(area, axis=2, output_type=tf.int32), positive, counts)


def _centres(head: Head, dtype: tf.DType) -> tf.Tensor:
    assert head.priors is not None
    return tf.constant((head.priors[:, :2] + head.priors[:, 2:]) / 2, dtype)


def _holds(head: Head, targets: tf.Tensor) -> tf.Tensor:
    """Whether a box holds a candidate's centre, bool (n, a, g)."""
    centre = _centres(head, targets.dtype)[None, :, None]
    low, high = targets[:, None, :, :2], targets[:, None, :, 2:4]
    return tf.reduce_all((centre > low) & (centre < high), axis=-1)


def _by_centre(head: Head, targets: tf.Tensor, there: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Cells inside a box and near its centre answer for it, or the nearest where none is."""
    assert head.levels is not None
    dtype = targets.dtype
    steps = np.asarray(head.settings.strides, np.float64)
    stride = tf.constant(steps[head.levels], dtype)[None, :, None]
    side = tf.reduce_max(targets[..., 2:4] - targets[..., :2], axis=-1)[:, None]
    least = np.concatenate([[0.0], _SIDES * steps[:-1]])
    most = np.concatenate([_SIDES * steps[:-1], [_FAR]])
    own_level = (side >= tf.constant(least[head.levels], dtype)[None, :, None]) & (
        side < tf.constant(most[head.levels], dtype)[None, :, None]
    )
    middle = (targets[..., :2] + targets[..., 2:4])[:, None] / 2
    apart = tf.abs(_centres(head, dtype)[None, :, None] - middle)  # (n, a, g, 2)
    possible = own_level & there[:, None]
    near = tf.reduce_all(apart <= _RADIUS * stride[..., None], axis=-1)
    answers = possible & near & _holds(head, targets)
    distance = tf.where(possible, tf.reduce_sum(tf.square(apart), axis=-1), _FAR)
    nearest = tf.one_hot(tf.argmin(distance, axis=1), len(head.levels), True, False, axis=1)
    alone = ~tf.reduce_any(answers, axis=1, keepdims=True)
    answers |= nearest & alone & possible
    return answers, tf.ones_like(answers[..., 0], tf.bool)


def _by_overlap(head: Head, targets: tf.Tensor, there: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Anchors that overlap a box by half answer for it, and the one that does so most."""
    priors = tf.constant(head.priors, targets.dtype)[None, :, None]
    other = targets[:, None, :, :4]
    shared, union = _shared_and_union(priors, other)
    overlap = tf.where(there[:, None], tf.math.divide_no_nan(shared, union), -1.0)
    best = tf.one_hot(tf.argmax(overlap, axis=1), len(head.priors), True, False, axis=1)  # type: ignore[arg-type]
    most = tf.reduce_max(overlap, axis=2, keepdims=True)
    answers = ((overlap >= _POSITIVE) & (overlap == most)) | (best & there[:, None])
    return answers, tf.squeeze(most, axis=2) < _NEGATIVE


def _score_loss(
    head: Head,
    weights: DetectionLossConfig,
    candidates: Candidates,
    assigned: Assignment,
    classes: tf.Tensor,
) -> tf.Tensor:
    """Return what scores lose, summed over each example's candidates, (n,)."""
    logits, dtype = candidates.logits, candidates.logits.dtype
    if head.settings.scores == "softmax":
        return _softmax_loss(logits, assigned, classes)
    counts = tf.cast(assigned.counts, dtype)
    positive = tf.cast(assigned.positive, dtype)
    wanted = tf.one_hot(classes, head.classes, dtype=dtype) * positive[..., None]
    if candidates.objectness is None:
        values = tf.reduce_sum(_focal(wanted, logits, weights), axis=-1)
        return tf.reduce_sum(values * counts, axis=1)
    there = _focal(positive, candidates.objectness, weights) * counts
    plain = tf.nn.sigmoid_cross_entropy_with_logits(wanted, logits)
    return tf.reduce_sum(there + tf.reduce_sum(plain, axis=-1) * positive, axis=1)


def _focal(wanted: tf.Tensor, logits: tf.Tensor, weights: DetectionLossConfig) -> tf.Tensor:
    """Return the focal loss of each number (Lin et al. 2017, equation 5)."""
    plain = tf.nn.sigmoid_cross_entropy_with_logits(wanted, logits)
    if weights.gamma == 0:
        return plain
    p = tf.sigmoid(logits)
    wrong = wanted * (1 - p) + (1 - wanted) * p
    alpha = wanted * weights.alpha + (1 - wanted) * (1 - weights.alpha)
    return alpha * tf.pow(wrong, weights.gamma) * plain


def _softmax_loss(logits: tf.Tensor, assigned: Assignment, classes: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of positives and of the hardest negatives, summed, (n,)."""
    labels = tf.where(assigned.positive, classes + 1, 0)
    values = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    negative = assigned.counts & ~assigned.positive
    positives = tf.math.count_nonzero(assigned.positive, axis=1, dtype=tf.int32)
    hard = tf.sort(tf.where(negative, values, 0.0), axis=1, direction="DESCENDING")
    most = _NEGATIVES * tf.maximum(positives, 1)
    chosen = tf.sequence_mask(most, tf.shape(hard)[1], dtype=values.dtype)
    own = tf.where(assigned.positive, values, 0.0)
    return tf.reduce_sum(own, axis=1) + tf.reduce_sum(hard * chosen, axis=1)


def _box_loss(head: Head, kind: str, boxes: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Return how far each candidate's box is from the one that it answers for, (n, a)."""
    if kind == "giou":
        return 1 - giou(boxes, wanted)
    assert head.priors is not None
    size = tf.constant(head.priors[:, 2:] - head.priors[:, :2], boxes.dtype)
    apart = tf.abs(boxes - wanted) / tf.concat([size, size], axis=-1)
    return tf.reduce_mean(apart, axis=-1)


def _area(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    return tf.reduce_prod(tf.maximum(high - low, 0.0), axis=-1)


def _shared_and_union(one: tf.Tensor, other: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    low, high = tf.maximum(one[..., :2], other[..., :2]), tf.minimum(one[..., 2:], other[..., 2:])
    shared = _area(low, high)
    areas = _area(one[..., :2], one[..., 2:]) + _area(other[..., :2], other[..., 2:])
    return shared, areas - shared


def giou(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Return the generalised intersection over union (Rezatofighi et al. 2019, algorithm 1)."""
    shared, union = _shared_and_union(one, other)
    low, high = tf.minimum(one[..., :2], other[..., :2]), tf.maximum(one[..., 2:], other[..., 2:])
    around = _area(low, high)
    gap = tf.math.divide_no_nan(around - union, around)
    return tf.math.divide_no_nan(shared, union) - gap
