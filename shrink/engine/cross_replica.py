"""The second mode of an update: its loop over micro-batches runs outside of the replicas.

Layers that exchange values between replicas in their forward pass cannot do so inside a loop of
each replica's own. Here every micro-batch is a forward and backward pass of all replicas
together; the accumulators stay with their replicas, and one all-reduce ends the update as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf
import tf_keras as keras

from shrink.base.types import Tensors
from shrink.engine.accumulate import Batch, unpack, zeros_of
from shrink.engine.objective import Totals


class Updating(Protocol):
    """What an update takes of a `shrink.engine.microbatch.MicroBatchTrainer`, in a replica."""

    model: keras.Model

    def micro_batch_size_in_graph(self) -> tf.Tensor:
        """Return the examples per forward pass and replica, int64 ()."""

    def totals(self, batch: Batch) -> Totals:
        """Return what the global batch holds of which `batch` is this replica's share."""

    def rows_of(self, batch: Batch, micro_batch_size: tf.Tensor) -> tf.Tensor:
        """Return how many examples of a batch to train on, int64 ()."""

    def gradients(self, part: Batch, totals: Totals) -> Sequence[tf.Tensor]:
        """Return a micro-batch's part of the gradient."""

    def update(self, gradients: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        """Apply the sum of all replicas' gradients, and return the metrics."""


def cross_replica_update(
    trainer: Updating, strategy: tf.distribute.Strategy, data: Tensors
) -> dict[str, tf.Tensor]:
    """Make one update on a distributed global batch; call it in cross-replica context.

    All replicas have the same number of micro-batches: each splits its examples evenly over them.

    Args:
        trainer: what computes and applies gradients.
        strategy: its strategy.
        data: the replicas' shares of a global batch.

    Returns:
        The metrics, by name, of each replica.
    """
    size = trainer.micro_batch_size_in_graph()
    replicas = strategy.num_replicas_in_sync

    def begin(data: Tensors) -> tuple[Totals, list[tf.Tensor]]:
        return trainer.totals(unpack(data)), zeros_of(trainer.model.trainable_variables)

    def accumulate(
        data: Tensors, index: tf.Tensor, count: tf.Tensor, totals: Totals, sums: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        batch = unpack(data)
        part = batch.part(index, count, trainer.rows_of(batch, size))
        gradients = trainer.gradients(part, totals)
        return [a + g for a, g in zip(sums, gradients, strict=True)]

    def update(sums: list[tf.Tensor]) -> dict[str, tf.Tensor]:
        # What comes out of the loop is on no device yet, and cannot be reduced from there.
        return trainer.update([tf.identity(one) for one in sums])

    totals, sums = strategy.run(begin, args=(data,))
    rows = strategy.experimental_local_results(totals.rows)[0]
    count = _accumulation_steps(rows, replicas, size)

    def step(index: tf.Tensor, sums: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        return index + 1, strategy.run(accumulate, args=(data, index, count, totals, sums))

    _, sums = tf.while_loop(
        lambda index, _: index < count,
        step,
        (tf.constant(0, tf.int64), sums),
        parallel_iterations=1,  # see `shrink.engine.accumulate.micro_batches`
    )
    return strategy.run(update, args=(sums,))


def _accumulation_steps(rows: tf.Tensor, replicas: int, size: tf.Tensor) -> tf.Tensor:
    """Return how many micro-batches the largest share of a global batch has, int64 ()."""
    largest = -(-rows // replicas)
    return tf.maximum(-(-largest // size), 1)
