"""Every loss in TensorFlow, example by example: those of tf-keras, Dice, and a user's functions.

No loss looks at other examples of a batch, so that its mean is the same however a batch is split.
tf-keras' own hinge losses do, to tell labels of 0 and 1 from -1 and 1; here a 0 is a -1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import tensorflow as tf
import tf_keras as keras

from shrink.base.arguments import Value
from shrink.base.keras_internals import mask_of
from shrink.base.losses import ValueKind, loss_of
from shrink.base.types import Array
from shrink.engine.user_loss import check_finite, user_loss

_EPSILON = 1e-7
"""Keras' distance from 0 for arguments of logarithms."""

LossFunction = Callable[[tf.Tensor, tf.Tensor, bool], tf.Tensor]
"""(labels, outputs, from_logits) to one number per element of the outputs but their last axis."""
Arguments = Mapping[str, Value]
Function = Callable[[tf.Tensor, tf.Tensor, bool, Arguments], tf.Tensor]
"""A `LossFunction` that also takes the loss's arguments."""


def loss_values(key: str, y: tf.Tensor, output: tf.Tensor, from_logits: bool) -> tf.Tensor:
    """Return the loss of each example, (n,), weighted by the output's mask where it has one.

    Args:
        key: of the loss.
        y: labels or targets, (n, ...).
        output: of the model, (n, ...).
        from_logits: whether the output is logits, where the loss is of probabilities.
    """
    loss = loss_of(key)
    if loss.name == "dice":
        return _dice(y, output, from_logits, loss.arguments, loss.kind or "labels")
    function = loss_function(key)
    return per_example(masked(function(y, at_least_float32(output), from_logits), output))


@functools.cache
def loss_function(key: str) -> LossFunction:
    """Return the function of a loss that is a mean over elements: of all but `dice`."""
    loss = loss_of(key)
    if loss.function is None:
        function, arguments = FUNCTIONS[loss.name], loss.arguments
        return lambda y, outputs, from_logits: function(y, outputs, from_logits, arguments)
    own, kind = user_loss(*loss.function), loss.kind or "values"
    return lambda y, outputs, from_logits: own(user_targets(y, outputs, kind), outputs)


def check_user_loss(key: str, y: Array, outputs: Array) -> None:
    """Raise `StageError` where a user's function returns no finite loss of each example.

    Args:
        key: of the loss; one of shrink's own is not checked.
        y, outputs: of some examples, (n, ...).
    """
    loss = loss_of(key)
    if loss.function is None:
        return
    given = tf.constant(outputs, tf.float32)
    values = loss_function(key)(tf.convert_to_tensor(y), given, False)
    check_finite(values, *loss.function, "training examples")


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


def _sparse_categorical_crossentropy(
    y: tf.Tensor, outputs: tf.Tensor, from_logits: bool, arguments: Arguments
) -> tf.Tensor:
    if _is_one_hot(y, outputs):  # labels that mixup made probabilities
        return FUNCTIONS["categorical_crossentropy"](y, outputs, from_logits, {})
    outputs = _as_stated(outputs, "Softmax", from_logits)
    y = _without_last(y, outputs)
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=from_logits)


def _of_classes(function: Callable[..., tf.Tensor]) -> Function:
    """Return a loss of tf-keras on the probabilities of classes."""
    return lambda y, outputs, from_logits, arguments: function(
        class_shares(y, outputs),
        _as_stated(outputs, "Softmax", from_logits),
        from_logits=from_logits,
        **arguments,
    )


def _of_labels(function: Callable[..., tf.Tensor]) -> Function:
    """Return a loss of tf-keras on the probability of each label."""
    return lambda y, outputs, from_logits, arguments: function(
        values_of(y, outputs),
        _as_stated(outputs, "Sigmoid", from_logits),
        from_logits=from_logits,
        **arguments,
    )


def _of_values(function: Callable[..., tf.Tensor]) -> Function:
    """Return a loss on real targets, from a function of targets, outputs and arguments."""
    return lambda y, outputs, _, arguments: function(values_of(y, outputs), outputs, **arguments)


def _kl_divergence(
    y: tf.Tensor, outputs: tf.Tensor, from_logits: bool, arguments: Arguments
) -> tf.Tensor:
    y = class_shares(y, outputs)
    return keras.losses.kl_divergence(y, tf.nn.softmax(outputs) if from_logits else outputs)


def _dice(
    y: tf.Tensor, output: tf.Tensor, from_logits: bool, arguments: Arguments, kind: ValueKind
) -> tf.Tensor:
    """Return 1 - (2 Σpy + s) / (Σp + Σy + s) over an example's positions (Milletari et al. 2016).

    The mean over the classes or labels of the last axis, (n,). A mask only says which count.
    """
    p = at_least_float32(output)
    y = class_shares(y, p) if kind == "classes" else values_of(y, p)
    if from_logits:
        p = tf.nn.softmax(p) if kind == "classes" else tf.sigmoid(p)
    mask = mask_of(output)
    if mask is not None:
        counts = _spread(tf.cast(tf.cast(mask, tf.bool), p.dtype), p.shape.rank)
        p, y = p * counts, y * counts
    positions = list(range(1, p.shape.rank - 1))
    shared = tf.reduce_sum(p * y, positions)
    smooth = tf.constant(arguments["smooth"], p.dtype)
    both = tf.reduce_sum(p, positions) + tf.reduce_sum(y, positions)
    return tf.reduce_mean(1.0 - (2.0 * shared + smooth) / (both + smooth), axis=-1)


def _hinge(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return tf.maximum(1.0 - tf.where(y == 0, -tf.ones_like(y), y) * outputs, 0.0)


def _huber(y: tf.Tensor, outputs: tf.Tensor, delta: float) -> tf.Tensor:
    # tf-keras' own turns float64 into float32.
    delta, apart = tf.constant(delta, outputs.dtype), tf.abs(outputs - y)
    return tf.where(apart <= delta, 0.5 * apart**2, delta * (apart - 0.5 * delta))


def _log_cosh(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    x = outputs - y
    return x + tf.math.softplus(-2.0 * x) - tf.constant(math.log(2.0), x.dtype)


def _log1p(x: tf.Tensor) -> tf.Tensor:
    return tf.math.log1p(tf.maximum(x, _EPSILON))


FUNCTIONS: Mapping[str, Function] = {
    "sparse_categorical_crossentropy": _sparse_categorical_crossentropy,
    "categorical_crossentropy": _of_classes(keras.losses.categorical_crossentropy),
    "binary_crossentropy": _of_labels(keras.losses.binary_crossentropy),
    "mean_squared_error": _of_values(lambda y, x: tf.square(y - x)),
    "mean_absolute_error": _of_values(lambda y, x: tf.abs(y - x)),
    "binary_focal_crossentropy": _of_labels(keras.losses.binary_focal_crossentropy),
    "categorical_focal_crossentropy": _of_classes(keras.losses.categorical_focal_crossentropy),
    "kl_divergence": _kl_divergence,
    "hinge": _of_values(_hinge),
    "squared_hinge": _of_values(lambda y, x: tf.square(_hinge(y, x))),
    "categorical_hinge": lambda y, x, *_: keras.losses.categorical_hinge(class_shares(y, x), x),
    "huber": _of_values(_huber),
    "log_cosh": _of_values(_log_cosh),
    "cosine_similarity": _of_values(keras.losses.cosine_similarity),
    "poisson": _of_values(lambda y, x: x - y * tf.math.log(x + _EPSILON)),
    "mean_absolute_percentage_error": _of_values(
        lambda y, x: 100.0 * tf.abs((y - x) / tf.maximum(tf.abs(y), _EPSILON))
    ),
    "mean_squared_logarithmic_error": _of_values(lambda y, x: tf.square(_log1p(x) - _log1p(y))),
}
"""Those of `shrink.base.losses.LOSSES` that are means over elements, with their arguments."""
