"""A user's own loss: a function of a Python file, checked for what it returns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from shrink.base.errors import StageError
from shrink.base.keras_internals import mask_of
from shrink.model.user_modules import blaming, function_of

_HINT = "return a tensor (n,), the loss of each example, or (n, ...), of each element of the output"
UserLoss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


@functools.cache
def user_loss(file: str, name: str) -> UserLoss:
    """Return a function of targets and outputs, (n, ...), to the loss of each example or element.

    If it raises, or returns anything else, a `StageError` names the line of the user's file.

    Args:
        file: a Python file, whose code runs here.
        name: of the function in it.

    Raises:
        ModelError: the file cannot be imported, or has no such function.
    """
    function = function_of(Path(file), name)

    def loss(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        with blaming(f"the loss {name} raised ", file, _HINT):
            found = function(y, outputs)
        return _checked(found, outputs, file, name)

    return loss


def check_finite(values: tf.Tensor, file: str, name: str, where: str) -> None:
    """Raise `StageError` where a loss is NaN or infinite.

    Args:
        values: of the function.
        file, name: of the function.
        where: on which examples, in words.
    """
    found = np.asarray(values, np.float64)
    if not np.isfinite(found).all():
        what = "NaN" if np.isnan(found).any() else "an infinite number"
        raise StageError(
            f"the loss {name} returned {what} for {where}",
            subject=file,
            hint="keep what it divides by, and takes logarithms of, away from 0",
        )


def _checked(found: object, outputs: tf.Tensor, file: str, name: str) -> tf.Tensor:
    try:
        values = tf.convert_to_tensor(found)
    except (TypeError, ValueError) as error:
        raise _refused(file, name, f"returned {type(found).__name__}, no tensor") from error
    if not values.dtype.is_floating:
        raise _refused(file, name, f"returned {values.dtype.name} in place of a loss")
    shape, wanted = values.shape, outputs.shape
    if shape.rank == 0:
        raise _refused(file, name, "returned one number for the whole batch")
    if shape.rank is None:
        raise _refused(file, name, "returned a tensor of unknown shape")
    if not shape[:1].is_compatible_with(wanted[:1]):
        raise _refused(file, name, f"returned the shape {shape} for {wanted[0]} examples")
    mask = mask_of(outputs)
    if mask is not None and not shape[: mask.shape.rank].is_compatible_with(mask.shape):
        raise _refused(file, name, f"returned {shape}, and the output's mask is of {mask.shape}")
    return tf.cast(values, outputs.dtype)


def _refused(file: str, name: str, what: str) -> StageError:
    return StageError(f"the loss {name} {what}", subject=file, hint=_HINT)
