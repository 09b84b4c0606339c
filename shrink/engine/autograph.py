"""AutoGraph, kept to the functions that may need it: those of a user's layers and models."""

from __future__ import annotations

import contextlib
import functools


@functools.cache
def convert_nothing_of_shrink() -> None:
    """Have AutoGraph leave shrink's functions as they are, as it does with Keras' own.

    None of them branches on a tensor, and to convert those of a training step took two seconds,
    more than half of a small training. `tf.function(autograph=False)` would be no substitute: it
    also holds for what is called, a custom layer whose `call` says `if` of a tensor. TensorFlow
    has no public name for the list; without it, nothing but time is lost.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from tensorflow.python.autograph.core import config

        config.CONVERSION_RULES = (config.DoNotConvert("shrink"), *config.CONVERSION_RULES)
