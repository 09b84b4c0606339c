"""What training minimises: a loss for each example, masked, with or without a teacher's targets.

tf-keras' layers carry a mask of the elements that count from the inputs to the outputs, such as
that of `Embedding(mask_zero=True)`. The mean over valid elements is no mean over examples: the
number of valid elements of the whole global batch has to be known before any part's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import DataError
from shrink.base.metrics import measured_outputs
from shrink.base.types import Tensors


class Totals(NamedTuple):
    """What a global batch holds, over all replicas.

    Attributes:
        rows: examples, int64 ().
        valid: valid elements of each masked output, int64 () each.
    """

    rows: tf.Tensor
    valid: tuple[tf.Tensor, ...] = ()


def masked_outputs(model: keras.Model) -> int:
    """Return how many of a functional model's outputs carry a mask."""
    return len(_masked(getattr(model, "outputs", None) or []))


def count_valid(outputs: Tensors) -> list[tf.Tensor]:
    """Return the valid elements of each masked output, int64 () each."""
    return [tf.reduce_sum(tf.cast(o._keras_mask, tf.int64)) for o in _masked(outputs)]


def weigh_masks(outputs: Tensors, totals: Totals) -> None:
    """Scale the outputs' masks, in place, to weights whose mean over the global batch is 1.

    The mean of weighted losses over all elements is then the mean over the valid ones, as in
    tf-keras (`losses_utils.apply_valid_mask`), but over the global batch.
    """
    for output, valid in zip(_masked(outputs), totals.valid, strict=True):
        mask = output._keras_mask
        elements = totals.rows * tf.reduce_prod(tf.shape(mask, out_type=tf.int64)[1:])
        scale = tf.math.divide_no_nan(tf.cast(elements, tf.float64), tf.cast(valid, tf.float64))
        dtype = tf.float64 if output.dtype == tf.float64 else tf.float32
        output._keras_mask = tf.cast(mask, dtype) * tf.cast(scale, dtype)


def masked(values: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
    """Multiply values by an output's mask, if it has one.

    Args:
        values: one number per element of the output, (n, ...).
        output: what the model gave; its mask has the leading axes of `values`.
    """
    mask = getattr(output, "_keras_mask", None)
    if mask is None:
        return values
    mask = tf.cast(mask, values.dtype)
    axes = values.shape.rank - mask.shape.rank
    return values * tf.reshape(mask, tf.concat([tf.shape(mask), [1] * axes], 0))


def _masked(outputs: Tensors) -> list[tf.Tensor]:
    return [o for o in tf.nest.flatten(outputs) if getattr(o, "_keras_mask", None) is not None]


LossFunction = Callable[[tf.Tensor, tf.Tensor, bool], tf.Tensor]
"""(labels, outputs, from_logits) to one number per element of the outputs but their last axis."""


class Objective(Protocol):
    """The loss of a stage, example by example, so that its mean is exact however it is split."""

    def begin(self, iterations: tf.Variable, total_updates: int) -> None:
        """Be told of the variable that counts updates, int64 (), and how many there will be.

        Called once the optimizer is there, before the loss is traced; a loss may change with it.
        """

    def targets(self, x: Tensors) -> Tensors:
        """Return what the loss needs of the inputs, such as a teacher's outputs, or None.

        Called once for each micro-batch, outside the gradient tape and before the model runs,
        so that its activations are gone by then.
        """

    def loss(self, y: Tensors, outputs: Tensors, targets: Tensors) -> tf.Tensor:
        """Return the loss of each example, (n,), float32 (float64 for float64 outputs)."""

    def validation_loss(self, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the loss on the labels alone, (n,), by which epochs are compared."""

    def metric(self, name: str, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the named metric of each example, (n,)."""


def at_least_float32(tensor: tf.Tensor) -> tf.Tensor:
    """Cast half precision to float32, in which losses are computed; leave other dtypes."""
    halves = (tf.float16, tf.bfloat16)
    return tf.cast(tensor, tf.float32) if tensor.dtype in halves else tensor


def per_example(values: tf.Tensor) -> tf.Tensor:
    """Average (n, ...) over all axes but the first, to (n,); (n,) stays as it is."""
    if values.shape.rank == 1:
        return values
    return tf.reduce_mean(values, axis=list(range(1, values.shape.rank)))


def _as_stated(outputs: tf.Tensor, operator: str, from_logits: bool) -> tf.Tensor:
    """Return the outputs such that Keras takes them for what they are said to be.

    Keras looks behind outputs for the logits of an activation, and takes those: of a sigmoid
    for the loss of a softmax too, of a softmax over any axis, and where the outputs are said to be
    logits. What is not the very softmax or sigmoid that the loss is of is hidden from it.
    """
    made_by = "" if tf.executing_eagerly() else outputs.op.type
    return outputs if made_by == operator and not from_logits else tf.identity(outputs)


def _sparse_categorical_crossentropy(
    y: tf.Tensor, outputs: tf.Tensor, from_logits: bool
) -> tf.Tensor:
    if y.shape.rank == outputs.shape.rank:
        if y.shape[-1] != 1:  # labels that mixup made probabilities
            missing = outputs.shape[-1] - y.shape[-1]
            y = tf.pad(y, [[0, 0]] * (y.shape.rank - 1) + [[0, missing]])
            return _categorical_crossentropy(y, outputs, from_logits)
        y = tf.squeeze(y, axis=-1)
    outputs = _as_stated(outputs, "Softmax", from_logits)
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=from_logits)


def _categorical_crossentropy(y: tf.Tensor, outputs: tf.Tensor, from_logits: bool) -> tf.Tensor:
    outputs = _as_stated(outputs, "Softmax", from_logits)
    return keras.losses.categorical_crossentropy(y, outputs, from_logits=from_logits)


def _values(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return targets in the outputs' shape and dtype.

    Where mixup made labels of a single output probabilities of their classes, the target is the
    expected label: 0.3 of a one and 0.7 of a zero is 0.3.
    """
    y = tf.cast(y, outputs.dtype)
    if y.shape.rank == outputs.shape.rank and outputs.shape[-1] == 1 and y.shape[-1] != 1:
        y = tf.linalg.matvec(y, tf.range(y.shape[-1], dtype=y.dtype))
    return tf.reshape(y, tf.shape(outputs))


def _binary_crossentropy(y: tf.Tensor, outputs: tf.Tensor, from_logits: bool) -> tf.Tensor:
    y = _values(y, outputs)
    outputs = _as_stated(outputs, "Sigmoid", from_logits)
    return keras.losses.binary_crossentropy(y, outputs, from_logits=from_logits)


def _mean_squared_error(y: tf.Tensor, outputs: tf.Tensor, from_logits: bool) -> tf.Tensor:
    return tf.square(_values(y, outputs) - outputs)


def _mean_absolute_error(y: tf.Tensor, outputs: tf.Tensor, from_logits: bool) -> tf.Tensor:
    return tf.abs(_values(y, outputs) - outputs)


LOSSES: Mapping[str, LossFunction] = {
    "sparse_categorical_crossentropy": _sparse_categorical_crossentropy,
    "categorical_crossentropy": _categorical_crossentropy,
    "binary_crossentropy": _binary_crossentropy,
    "mean_squared_error": _mean_squared_error,
    "mean_absolute_error": _mean_absolute_error,
}
"""The losses that a recipe's task can name."""


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
    return _among_best(y, outputs, 1)


def _binary_accuracy(y: tf.Tensor, outputs: tf.Tensor, from_logits: bool) -> tf.Tensor:
    threshold = 0.0 if from_logits else 0.5
    return tf.cast(tf.equal(_values(y, outputs) > 0.5, outputs > threshold), tf.float32)


def _top5_accuracy(y: tf.Tensor, outputs: tf.Tensor, from_logits: bool) -> tf.Tensor:
    return _among_best(y, outputs, 5)


def _among_best(y: tf.Tensor, outputs: tf.Tensor, top: int) -> tf.Tensor:
    """Return the chance that the own class is among the best, ties broken at random.

    As the report's metrics do (`shrink.task.accuracy`): outputs that all became equal, or NaN,
    are no hits.
    """
    own = tf.gather(
        outputs, _sparse_labels(y, outputs)[..., None], batch_dims=outputs.shape.rank - 1
    )
    better = tf.math.count_nonzero(outputs > own, axis=-1, dtype=tf.float32)
    equal = tf.math.count_nonzero(outputs == own, axis=-1, dtype=tf.float32)
    chance = tf.clip_by_value((top - better) / tf.maximum(equal, 1.0), 0.0, 1.0)
    return tf.where(tf.reduce_any(tf.math.is_nan(outputs), axis=-1), 0.0, chance)


METRICS: Mapping[str, LossFunction] = {
    **LOSSES,
    "accuracy": _accuracy,
    "binary_accuracy": _binary_accuracy,
    "top5_accuracy": _top5_accuracy,
}
"""The metrics that training can follow."""


class SupervisedObjective:
    """The mean loss on labels or targets, over the elements that the outputs' masks leave.

    A model of several outputs is trained on the weighted sum of their losses, as Keras does, and
    a metric is its mean over the outputs whose losses it goes with; labels are matched with
    outputs in order.

    Args:
        loss: a key of `LOSSES`, or one for each output.
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

    def begin(self, iterations: tf.Variable, total_updates: int) -> None:
        """Change nothing: the loss is the same throughout."""

    def targets(self, x: Tensors) -> None:
        """Return None: labels are all it needs."""
        return None

    def loss(self, y: Tensors, outputs: Tensors, targets: Tensors) -> tf.Tensor:
        """Return the loss of each example, (n,)."""
        return self.validation_loss(y, outputs)

    def validation_loss(self, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the loss of each example, (n,)."""
        pairs = _pair(y, outputs)
        losses = for_each(self._losses, len(pairs))
        weights = for_each(self._weights, len(pairs))
        values = [self._value(LOSSES[name], i, pairs) for i, name in enumerate(losses)]
        # A factor of 1 changes nothing, and so is left out of the graph.
        return tf.add_n([v if w == 1.0 else v * w for v, w in zip(values, weights, strict=True)])

    def metric(self, name: str, y: Tensors, outputs: Tensors) -> tf.Tensor:
        """Return the named metric of each example, (n,)."""
        pairs = _pair(y, outputs)
        chosen = measured_outputs(name, for_each(self._losses, len(pairs)))
        values = [self._value(METRICS[name], i, pairs) for i in chosen]
        return tf.add_n(values) / len(values)

    def _value(
        self, function: LossFunction, index: int, pairs: Sequence[tuple[tf.Tensor, tf.Tensor]]
    ) -> tf.Tensor:
        """Return what a function says of one output of each example, (n,)."""
        label, output = pairs[index]
        from_logits = for_each(self._from_logits, len(pairs))[index]
        return per_example(masked(function(label, at_least_float32(output), from_logits), output))


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
