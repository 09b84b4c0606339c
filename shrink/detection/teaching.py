"""What a detector loses against its teacher: scores of every candidate, and boxes where one is.

The boxes and the classes of most candidates mean nothing, for nothing is there. So they count as
far as the teacher believes in them (objectness scaled distillation, Mehta & Ozturk 2018, "Object
detection at 200 Frames Per Second", section 3.3), and examples are normalised by the sum of that:
no example's loss depends on another's.
"""

from __future__ import annotations

from collections.abc import Sequence

from shrink.detection.head import Candidates, Head
from shrink.detection.loss import giou
from shrink.tflite.lazy import tf


def teacher_loss(
    head: Head,
    box_weight: float,
    outputs: Sequence[tf.Tensor],
    teacher_outputs: Sequence[tf.Tensor],
    temperature: float | tf.Tensor,
) -> tf.Tensor:
    """Return the loss of each example, (n,).

    With p the teacher's best score of a candidate it is the sum over candidates of

        T² KL(scores) + box_weight p (1 - GIoU of both boxes)

    over the sum of p, at least 1. KL is between the sigmoids of logits over T, summed over classes,
    or between their softmax; of heads with objectness it is that of objectness, plus p times that
    of the classes.

    Args:
        head: how outputs are read.
        box_weight: factor of the boxes' part.
        outputs: of the student, (n, ...) each.
        teacher_outputs: of its teacher, of the same shapes.
        temperature: T > 0.
    """
    own = head.read(outputs)
    teacher = head.read([tf.stop_gradient(one) for one in teacher_outputs])
    weight = tf.reduce_max(head.probabilities(teacher), axis=-1)  # (n, a)
    scores = _scores(head, own, teacher, weight, temperature)
    # Nothing is learnt from a box that is not finite, not even NaN by its gradient.
    finite = tf.reduce_all(tf.math.is_finite(teacher.boxes), axis=-1, keepdims=True)
    wanted = tf.where(finite, teacher.boxes, tf.stop_gradient(own.boxes))
    boxes = 1 - giou(own.boxes, wanted)
    total = tf.reduce_sum(scores + box_weight * weight * boxes, axis=1)
    return total / tf.maximum(tf.reduce_sum(weight, axis=1), 1.0)


def _scores(
    head: Head,
    own: Candidates,
    teacher: Candidates,
    weight: tf.Tensor,
    temperature: float | tf.Tensor,
) -> tf.Tensor:
    """Return what scores of each candidate lose, (n, a)."""
    s, t = own.logits / temperature, teacher.logits / temperature
    if head.settings.scores == "softmax":
        log_p, log_q = tf.nn.log_softmax(t), tf.nn.log_softmax(s)
        return temperature**2 * tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)
    classes = tf.reduce_sum(_bernoulli(s, t), axis=-1)
    if own.objectness is None or teacher.objectness is None:
        return temperature**2 * classes
    there = _bernoulli(own.objectness / temperature, teacher.objectness / temperature)
    return temperature**2 * (there + weight * classes)


def _bernoulli(s: tf.Tensor, t: tf.Tensor) -> tf.Tensor:
    """Return KL(sigmoid(t) ‖ sigmoid(s)) of each element."""
    yes = tf.math.log_sigmoid(t) - tf.math.log_sigmoid(s)
    no = tf.math.log_sigmoid(-t) - tf.math.log_sigmoid(-s)
    p = tf.sigmoid(t)
    return p * yes + (1 - p) * no
