"""Weights that begin as zeros, as they are about to be assigned.

Random numbers for 25 million weights take as long as reading them from a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras as keras
from tf_keras.src import backend

_DRAWS = ("random_uniform", "random_normal", "truncated_normal")
_DTYPE = 2
"""Its position among the arguments that follow the shape."""


@contextlib.contextmanager
def weights_to_come() -> Iterator[None]:
    """Let initializers draw nothing, in a block after which every weight of a layer is assigned.

    They take their seeds as ever, so that what is drawn later is what it would have been.
    """
    generator = backend.RandomGenerator
    own = {name: getattr(generator, name) for name in _DRAWS}
    for name, draw in own.items():
        setattr(generator, name, _undrawn(draw))
    try:
        yield
    finally:
        for name, draw in own.items():
            setattr(generator, name, draw)


def only_of_keras(layers: Sequence[keras.layers.Layer]) -> bool:
    """Whether all layers are Keras' own, which hold nothing random that is no weight."""
    parts = (part for layer in layers for part in layer._flatten_layers())
    return all(type(part).__module__.startswith("tf_keras.") for part in parts)


def _undrawn(draw: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Return what initializers are given in place of random numbers; others have their own."""

    def zeros(
        self: backend.RandomGenerator, shape: Sequence[int], *given: Any, **named: Any
    ) -> tf.Tensor:
        self._maybe_init()
        if self._rng_type != self.RNG_STATELESS:
            return draw(self, shape, *given, **named)
        dtype = given[_DTYPE] if len(given) > _DTYPE else named.get("dtype")
        return tf.zeros(shape, dtype or keras.backend.floatx())

    return zeros
