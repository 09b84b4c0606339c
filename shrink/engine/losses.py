"""Every loss in TensorFlow, example by example: formulas, cross-entropies, and users' functions.

No loss looks at other examples of a batch, so that its mean is the same however a batch is split.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.keras_internals import mask_of
from shrink.base.losses import Loss, ValueKind, loss_of
from shrink.base.types import Array
from shrink.engine.user_loss import check_finite, user_loss

LossFunction = Callable[[tf.Tensor, tf.Tensor, bool], tf.Tensor]
"""(labels, outputs, from_logits) to one number per element of the outputs but their last axis."""
NAMESPACE = SimpleNamespace(
    abs=tf.abs,
    clip=tf.clip_by_value,
    exp=tf.exp,
    log=tf.math.log,
    log1p=tf.math.log1p,
    max=tf.reduce_max,
    maximum=tf.maximum,
    mean=tf.reduce_mean,
    sqrt=tf.sqrt,
    square=tf.square,
    sum=tf.reduce_sum,
    where=tf.where,
)
"""What formulas of losses use of NumPy, on tensors."""


def loss_values(key: str, y: tf.Tensor, output: tf.Tensor, from_logits: bool) -> tf.Tensor:
    """Return the loss of each example, (n,), weighted by the output's mask where it has one.

    Args:
        key: of the loss.
        y: labels or targets, (n, ...).
        output: of the model, (n, ...).
        from_logits: whether the output is logits, where the loss is of probabilities.
    """
    loss, x = loss_of(key), at_least_float32(output)
    if not loss.info.by_example:
        return per_example(masked(loss_function(key)(y, x, from_logits), output))
    y, x = _of_formula(loss, y, x, from_logits)
    mask = mask_of(output)
    if mask is not None:  # it only says which count
        counts = _spread(tf.cast(mask, tf.bool), x.shape.rank)
        x, y = (tf.where(counts, one, tf.zeros_like(one)) for one in (x, y))
    return loss.computed(NAMESPACE, y, x)


@functools.cache
def loss_function(key: str) -> LossFunction:
    """Return the function of a loss that is a mean over elements: of all but `dice`."""
    loss = loss_of(key)
    if loss.function is not None:
        own, kind = user_loss(*loss.function), loss.kind or "values"
        return lambda y, outputs, from_logits: own(user_targets(y, outputs, kind), outputs)
    if loss.info.is_entropy:
        return lambda y, outputs, from_logits: _entropy(loss, y, outputs, from_logits)
    return lambda y, outputs, from_logits: loss.computed(
        NAMESPACE, *_of_formula(loss, y, outputs, from_logits)
    )


def _of_formula(
    loss: Loss, y: tf.Tensor, outputs: tf.Tensor, from_logits: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return targets and outputs as the formula of a loss takes them."""
    of_classes = loss.kind == "classes"
    y = class_shares(y, outputs) if of_classes else values_of(y, outputs)
    if from_logits and loss.info.of_probabilities:
        outputs = tf.nn.softmax(outputs) if of_classes else tf.sigmoid(outputs)
    return y, outputs


def _entropy(loss: Loss, y: tf.Tensor, outputs: tf.Tensor, from_logits: bool) -> tf.Tensor:
    """Return tf-keras' cross-entropy of each element, or its mean over an element's labels."""
    name, arguments = loss.name, dict(loss.arguments)
    arguments.pop("ignore_class", None)  # masked before
    if loss.info.of_numbers and _is_one_hot(y, outputs):  # labels that mixup made probabilities
        name = "categorical_crossentropy"
    if name == "sparse_categorical_crossentropy":
        y = _without_last(y, outputs)
    else:
        y = (class_shares if loss.kind == "classes" else values_of)(y, outputs)
    shown = _as_stated(outputs, "Softmax" if loss.kind == "classes" else "Sigmoid", from_logits)
    return getattr(keras.losses, name)(y, shown, from_logits=from_logits, **arguments)


def user_loss_values(key: str, y: Array, outputs: Array, where: str) -> Array:
    """Return what a user's function gives for float32 tensors, as in training: float64 (n, ...).

    Args:
        key: of the loss.
        y, outputs: of some examples, (n, ...).
        where: on which examples, in words.

    Raises:
        StageError: the function raises, or returns no finite loss of each example.
    """
    loss, given = loss_of(key), tf.constant(outputs, tf.float32)
    values = loss_function(key)(tf.convert_to_tensor(y), given, False)
    if loss.function is not None:
        check_finite(values, *loss.function, where)
    return np.asarray(values, np.float64)


def user_targets(y: tf.Tensor, outputs: tf.Tensor, kind: ValueKind) -> tf.Tensor:
    """Return targets as a user's function gets them.

    Class numbers are int64 (n, ...) without an axis of 1; one-hot labels and all other targets have
    the outputs' shape and dtype, or their own shape where that has another number of elements.
    """
    if kind == "classes" and not _is_one_hot(y, outputs):
        return tf.cast(_without_last(y, outputs), tf.int64)
    if kind == "classes":
        return class_shares(y, outputs)
    known = [shape[1:].num_elements() for shape in (y.shape, outputs.shape)]
    is_alike = None in known or known[0] == known[1]
    return values_of(y, outputs) if is_alike else tf.cast(y, outputs.dtype)


def at_least_float32(tensor: tf.Tensor) -> tf.Tensor:
    """Cast half precision to float32, in which losses are computed; leave other dtypes."""
    halves = (tf.float16, tf.bfloat16)
    return tf.cast(tensor, tf.float32) if tensor.dtype in halves else tensor


def per_example(values: tf.Tensor) -> tf.Tensor:
    """Average (n, ...) over all axes but the first, to (n,); (n,) stays as it is."""
    if values.shape.rank == 1:
        return values
    return tf.reduce_mean(values, axis=list(range(1, values.shape.rank)))


def masked(values: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
    """Multiply values by an output's mask, if it has one.

    Args:
        values: one number per element of the output, (n, ...).
        output: of the model; its mask has the leading axes of `values`.
    """
    mask = mask_of(output)
    if mask is None:
        return values
    return values * _spread(tf.cast(mask, values.dtype), values.shape.rank)


def _spread(mask: tf.Tensor, rank: int) -> tf.Tensor:
    """Return a mask with axes of 1 behind its own, of this rank."""
    return tf.reshape(mask, tf.concat([tf.shape(mask), [1] * (rank - mask.shape.rank)], 0))


def _as_stated(outputs: tf.Tensor, operator: str, from_logits: bool) -> tf.Tensor:
    """Return the outputs such that Keras does not look behind them for logits.

    It would take the logits of a sigmoid for the loss of a softmax too, those of a softmax over any
    axis, and those behind outputs that are logits themselves. Only the very activation of the
    loss, `operator`, stays visible.
    """
    made_by = "" if tf.executing_eagerly() else outputs.op.type
    return outputs if made_by == operator and not from_logits else tf.identity(outputs)


def _is_one_hot(y: tf.Tensor, outputs: tf.Tensor) -> bool:
    """Whether labels are one-hot or shares of classes, such as mixup makes of class numbers."""
    return y.shape.rank == outputs.shape.rank and y.shape[-1] != 1


def _without_last(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return tf.squeeze(y, axis=-1) if y.shape.rank == outputs.shape.rank else y


def class_shares(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return class numbers, one-hot labels, or shares of the first classes as shares of all."""
    if not _is_one_hot(y, outputs):
        numbers = tf.cast(_without_last(y, outputs), tf.int64)
        return tf.one_hot(numbers, outputs.shape[-1], dtype=outputs.dtype)
    missing = outputs.shape[-1] - y.shape[-1]
    y = tf.pad(y, [[0, 0]] * (y.shape.rank - 1) + [[0, missing]]) if missing else y
    return tf.cast(y, outputs.dtype)


def values_of(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return targets in the outputs' shape and dtype.

    Where mixup made labels of a single output probabilities of their classes, the target is the
    expected label: 0.3 of a one and 0.7 of a zero is 0.3.
    """
    y = tf.cast(y, outputs.dtype)
    if y.shape.rank == outputs.shape.rank and outputs.shape[-1] == 1 and y.shape[-1] != 1:
        y = tf.linalg.matvec(y, tf.range(y.shape[-1], dtype=y.dtype))
    return tf.reshape(y, tf.shape(outputs))
