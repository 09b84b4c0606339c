"""Dropout and noise as a function of the seed and a counter, so that they can be continued.

tf-keras' layers draw from TensorFlow's stateful operations, whose state cannot be saved. While
training is traced in here they draw from stateless ones (Salmon et al. 2011) instead: the same
distribution, the same numbers after a checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras as keras

from shrink.base.keras_internals import drawing_from, layers_of, stateful_generator

Position: TypeAlias = "tuple[tf.Tensor | None, int]"
"""The forward pass, and the number of draws in it so far."""


def counter(name: str) -> tf.Variable:
    """Return an int64 () of each replica's own, 0 at first; outside of replicas the first's."""
    return tf.Variable(
        0,
        dtype=tf.int64,
        trainable=False,
        name=name,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
    )


class RandomSeeds:
    """A seed for each draw: of the run, the position in the model, the forward pass, the replica.

    Create it inside the devices' scope.

    Args:
        seed: of the run.
    """

    def __init__(self, seed: int) -> None:
        self.variable = counter("forward_passes")
        self._seed = seed
        self._now = _Draws()

    def begin(self) -> None:
        """Begin a forward pass; called in graph, by each replica."""
        self._now.go_to(self.variable.assign_add(1), 0)

    @property
    def position(self) -> Position:
        """The forward pass and index of the next draw."""
        return self._now.forward_pass, self._now.index

    @contextmanager
    def drawing_again(self, position: Position) -> Iterator[None]:
        """Repeat the draws from a position on, in here."""
        now = self.position
        self._now.go_to(*position)
        try:
            yield
        finally:
            self._now.go_to(*now)

    def next(self) -> tf.Tensor:
        """Return the seed of the next draw in this forward pass, int64 (2,)."""
        forward_pass, index = self.position
        self._now.go_to(forward_pass, index + 1)
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
        position = tf.constant((self._seed % 2**32 << 20) + index + 1, tf.int64)
        return tf.stack([position, forward_pass * context.num_replicas_in_sync + replica])


class _Draws(threading.local):
    """A forward pass and the number of draws in it so far.

    Each replica is traced in a thread of its own, and layers that synchronise switch between them
    in the middle of a forward pass.
    """

    forward_pass: tf.Tensor | None = None
    index = 0

    def go_to(self, forward_pass: tf.Tensor | None, index: int) -> None:
        """Set both."""
        self.forward_pass, self.index = forward_pass, index


def stateful_generators(model: keras.Model) -> list[Any]:
    """Return the generators of a model's layers whose state cannot be saved."""
    return [found for layer in layers_of(model) if (found := stateful_generator(layer)) is not None]


@contextmanager
def continued_randomness(model: keras.Model, seeds: RandomSeeds | None) -> Iterator[None]:
    """Let a model's random layers draw from `seeds` while they are traced in here.

    Without seeds nothing changes. Layers with a `tf.random.Generator` of their own keep it; its
    state can be saved as it is.
    """
    if seeds is None:
        yield
        return
    with drawing_from(stateful_generators(model), seeds.next):
        yield
