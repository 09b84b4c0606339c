"""Traces models whose own layers branch on tensors in Python."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def traced(function: Callable[..., Any], **options: Any) -> Any:
    """Return a `tf.function` in which Keras converts the `call` of layers that are not its own.

    AutoGraph turns an `if` of a tensor into a branch of the graph, where TensorFlow's status says
    so. `tf.function(autograph=False)` says no, to all that is called; with AutoGraph the function
    itself is converted too, which takes time and leaves generated source files in the temporary
    folder. TensorFlow has no public name for the status; without it, such layers are not traced.

    Args:
        function: branches on no tensor itself.
        options: of `tf.function`.
    """

    @functools.wraps(function)
    def inside(*args: Any, **named: Any) -> Any:
        with _converting():
            return function(*args, **named)

    return tf.function(inside, autograph=False, **options)


def _converting() -> contextlib.AbstractContextManager[Any]:
    with contextlib.suppress(ImportError, AttributeError):
        from tensorflow.python.autograph.core import ag_ctx

        found: contextlib.AbstractContextManager[Any] = ag_ctx.ControlStatusCtx(
            ag_ctx.Status.ENABLED
        )
        return found
    return contextlib.nullcontext()
