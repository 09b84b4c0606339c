"""The objective of training: a loss for each example, masked, with or without a teacher's targets.

tf-keras' layers carry a mask of the elements that count from the inputs to the outputs, such as
that of `Embedding(mask_zero=True)`. The mean over valid elements is no mean over examples: the
number of valid elements of the whole global batch has to be known before any part's gradient.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError
from shrink.base.keras_internals import mask_of, set_mask
from shrink.base.losses import ignored_class, is_function
from shrink.base.metrics import measured_outputs
from shrink.base.types import Tensors
from shrink.engine.losses import (
    LossFunction,
    at_least_float32,
    loss_function,
    loss_values,
    masked,
    per_example,
    values_of,
)


class Totals(NamedTuple):
    """Sums over a global batch, of all replicas.

    Attributes:
        rows: examples, int64 ().
        valid: valid elements of each masked output, int64 () each.
    """

    rows: tf.Tensor
    valid: tuple[tf.Tensor, ...] = ()


def masked_outputs(model: keras.Model, ignored: Sequence[int | None] = ()) -> int:
    """Return how many of a functional model's outputs carry a mask, or get one from their labels.

    Args:
        model: a Keras model.
        ignored: the class of each output that its loss leaves out, None for none.
    """
    outputs = getattr(model, "outputs", None) or []
    some = [*ignored, *[None] * (len(outputs) - len(ignored))]
    return sum(_has_mask(o) or i is not None for o, i in zip(outputs, some, strict=True))


def mask_ignored(
    objective: Objective, y: Tensors, outputs: Tensors, valid: tf.Tensor | None = None
) -> None:
    """Mask, in place, the elements of outputs whose labels the loss leaves out.

    Args:
        objective: its `ignored` classes are left out.
        y: labels, as the objective takes them.
        outputs: of the model; a mask that they have is narrowed.
        valid: bool (n,), false for a row that is no example; None where all are.
    """
    flat = tf.nest.flatten(outputs)
    for index, left_out in enumerate(objective.ignored(len(flat))):
        if left_out is None:
            continue
        output, labels = flat[index], tf.nest.flatten(y)[index]
        labels = labels if labels.shape.rank < output.shape.rank else tf.squeeze(labels, -1)
        counts = tf.cast(labels, tf.int64) != left_out
        before = mask_of(output)
        for other in (before, valid):
            if other is not None:
                axes = [1] * (counts.shape.rank - other.shape.rank)
                counts &= tf.reshape(tf.cast(other, tf.bool), tf.concat([tf.shape(other), axes], 0))
        set_mask(output, counts)


def count_valid(outputs: Tensors) -> list[tf.Tensor]:
    """Return the valid elements of each masked output, int64 () each."""
    return [tf.reduce_sum(tf.cast(mask_of(o), tf.int64)) for o in _masked(outputs)]


def weigh_masks(outputs: Tensors, totals: Totals) -> None:
    """Scale the outputs' masks, in place, to weights whose mean over the global batch is 1.

    The mean of weighted losses over all elements is then the mean over the valid ones, as in
    tf-keras (`losses_utils.apply_valid_mask`), but over the global batch.
    """
    for output, valid in zip(_masked(outputs), totals.valid, strict=True):
        mask = mask_of(output)
        elements = totals.rows * tf.reduce_prod(tf.shape(mask, out_type=tf.int64)[1:])
        scale = tf.math.divide_no_nan(tf.cast(elements, tf.float64), tf.cast(valid, tf.float64))
        dtype = tf.float64 if output.dtype == tf.float64 else tf.float32
        set_mask(output, tf.cast(mask, dtype) * tf.cast(scale, dtype))


def _masked(outputs: Tensors) -> list[tf.Tensor]:
    return [output for output in tf.nest.flatten(outputs) if _has_mask(output)]


def _has_mask(output: tf.Tensor) -> bool:
    return mask_of(output) is not None


class Objective(abc.ABC):
    """The loss of a stage, example by example, so that its mean is exact however it is split."""

    def targets(self, x: Tensors) -> Tensors:
        """Return targets that depend on the inputs, such as a teacher's outputs; by default None.

        Called once for each micro-batch, outside the gradient tape and before the model runs,
        so that its activations are gone by then.
        """
        return None

    def loss(self, y: Tensors, outputs: Tensors, targets: Tensors) -> tf.Tensor:
        """Return the loss of each example, (n,), float32 (float64 for float64 outputs)."""
        return self.validation_loss(y, outputs)

    @abc.abstractmethod
    def validation_loss(self, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the loss on the labels alone, (n,), by which epochs are compared."""

    @abc.abstractmethod
    def metric(self, name: str, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the named metric of each example, (n,)."""

    def ignored(self, outputs: int) -> Sequence[int | None]:
        """Return the class number of each output whose elements do not count; None for none."""
        return [None] * outputs

    def user_losses(self) -> Sequence[str]:
        """Return the losses that are a user's functions, which may compute anything."""
        return ()


def _sparse_labels(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return integer labels, whatever way they are written, of the outputs' shape but the last."""
    if y.shape.rank != outputs.shape.rank:
        return tf.cast(y, tf.int32)
    if y.shape[-1] == 1:
        return tf.cast(tf.squeeze(y, axis=-1), tf.int32)
    return tf.argmax(y, axis=-1, output_type=tf.int32)


def _accuracy(y: tf.Tensor, outputs: tf.Tensor, from_logits: bool) -> tf.Tensor:
    if outputs.shape[-1] == 1:
        return _binary_accuracy(y, outputs, from_logits)
    labels = _sparse_labels(y, outputs)[..., None]
    own = tf.gather(outputs, labels, batch_dims=outputs.shape.rank - 1)
    # Of equal outputs the first is decided. `tf.argmax` does not promise that on GPUs.
    first = tf.range(outputs.shape[-1]) < labels
    missed = (outputs > own) | ((outputs == own) & first) | tf.math.is_nan(outputs)
    return tf.cast(~tf.reduce_any(missed, axis=-1), tf.float32)


def _binary_accuracy(y: tf.Tensor, outputs: tf.Tensor, from_logits: bool) -> tf.Tensor:
    threshold = 0.0 if from_logits else 0.5
    return tf.cast(tf.equal(values_of(y, outputs) > 0.5, outputs > threshold), tf.float32)


def _top5_accuracy(y: tf.Tensor, outputs: tf.Tensor, from_logits: bool) -> tf.Tensor:
    """Return the probability that the true class is among the best 5, ties broken at random.

    As the report's metrics do (`shrink.base.scores.means`): constant outputs and NaN are no hits.
    """
    labels = _sparse_labels(y, outputs)[..., None]
    own = tf.gather(outputs, labels, batch_dims=outputs.shape.rank - 1)
    better = tf.math.count_nonzero(outputs > own, axis=-1, dtype=tf.float32)
    equal = tf.math.count_nonzero(outputs == own, axis=-1, dtype=tf.float32)
    chance = tf.clip_by_value((5.0 - better) / tf.maximum(equal, 1.0), 0.0, 1.0)
    return tf.where(tf.reduce_any(tf.math.is_nan(outputs), axis=-1), 0.0, chance)


_LOSSES = (
    "sparse_categorical_crossentropy",
    "categorical_crossentropy",
    "binary_crossentropy",
    "mean_squared_error",
    "mean_absolute_error",
)
METRICS: Mapping[str, LossFunction] = {
    **{name: loss_function(name) for name in _LOSSES},
    "accuracy": _accuracy,
    "binary_accuracy": _binary_accuracy,
    "top5_accuracy": _top5_accuracy,
}
"""The metrics that training can follow."""


class SupervisedObjective(Objective):
    """The mean loss on labels or targets, over the elements that the outputs' masks leave.

    A model of several outputs is trained on the weighted sum of their losses, as Keras does, and
    a metric is its mean over the outputs whose losses it goes with; labels are matched with
    outputs in order.

    Args:
        loss: the key of a loss, as `shrink.base.losses` has it, or one for each output.
        from_logits: whether the outputs are logits, else probabilities; or that of each output.
        weights: the factor of each output's loss; by default 1.
    """

    def __init__(
        self,
        loss: str | Sequence[str],
        from_logits: bool | Sequence[bool],
        weights: Sequence[float] | None = None,
    ) -> None:
        self._losses = loss
        self._from_logits = from_logits
        self._weights: float | Sequence[float] = 1.0 if weights is None else weights

    def validation_loss(self, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the loss of each example, (n,)."""
        pairs = _pair(y, outputs)
        losses = for_each(self._losses, len(pairs))
        weights = for_each(self._weights, len(pairs))
        logits = for_each(self._from_logits, len(pairs))
        values = [
            loss_values(key, _with_classes(label, key), output, from_logits)
            for key, (label, output), from_logits in zip(losses, pairs, logits, strict=True)
        ]
        # A factor of 1 changes nothing, and so is left out of the graph.
        return tf.add_n([v if w == 1.0 else v * w for v, w in zip(values, weights, strict=True)])

    def metric(self, name: str, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the named metric of each example, (n,)."""
        pairs = _pair(y, outputs)
        losses = for_each(self._losses, len(pairs))
        logits = for_each(self._from_logits, len(pairs))
        widths = [output.shape[-1] if output.shape.rank > 1 else 1 for _, output in pairs]
        values = []
        for index in measured_outputs(name, losses, widths):
            label, output = _with_classes(pairs[index][0], losses[index]), pairs[index][1]
            value = METRICS[name](label, at_least_float32(output), logits[index])
            values.append(per_example(masked(value, output)))
        return tf.add_n(values) / len(values)

    def ignored(self, outputs: int) -> Sequence[int | None]:
        """Return the class number of each output whose elements do not count; None for none."""
        return [ignored_class(key) for key in for_each(self._losses, outputs)]

    def user_losses(self) -> Sequence[str]:
        """Return the losses that are a user's functions."""
        return [key for key in for_each(self._losses, 1) if is_function(key)]


def _with_classes(y: tf.Tensor, loss: str) -> tf.Tensor:
    """Return labels with a class of the model where one is left out: it may be none of them."""
    left_out = ignored_class(loss)
    return y if left_out is None else tf.where(y == tf.cast(left_out, y.dtype), tf.zeros_like(y), y)


def for_each(values: Any, outputs: int) -> Sequence[Any]:
    """Return one value per output, where one is given for all of them; sequences as they are."""
    one_for_all = isinstance(values, str) or not isinstance(values, Sequence)
    return [values] * outputs if one_for_all else values


def _pair(y: Tensors, outputs: Tensors) -> list[tuple[tf.Tensor, tf.Tensor]]:
    labels, predictions = tf.nest.flatten(y), tf.nest.flatten(outputs)
    if len(labels) != len(predictions):
        raise DataError(
            f"the data has {len(labels)} label arrays and the model {len(predictions)} outputs",
            subject="labels",
            hint="give one array of labels for each output",
        )
    return list(zip(labels, predictions, strict=True))
