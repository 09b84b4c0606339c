"""The second mode of an update: its loop over micro-batches runs outside of the replicas.

Layers that exchange values between replicas in their forward pass cannot do so inside a loop of
each replica's own. Here every turn of the loop is a forward and backward pass of all replicas
together; the accumulators stay with their replicas, and one all-reduce ends the update as ever.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shrink.engine.accumulate import unpack, zeros_of


def cross_replica_update(trainer: Any, strategy: tf.distribute.Strategy, data: Any) -> Any:
    """Make one update on a distributed global batch; call it in cross-replica context.

    All replicas take the same number of turns: each splits its examples evenly over them.

    Args:
        trainer: a `shrink.engine.microbatch.MicroBatchTrainer`.
        strategy: its strategy.
        data: the replicas' shares of a global batch.

    Returns:
        The metrics, by name, of each replica.
    """
    size = trainer.micro_batch_size_in_graph()
    replicas = strategy.num_replicas_in_sync

    def begin(data: Any) -> tuple[Any, list[Any]]:
        return trainer.totals(unpack(data)), zeros_of(trainer.model.trainable_variables)

    def accumulate(data: Any, index: Any, count: Any, totals: Any, sums: list[Any]) -> list[Any]:
        batch = unpack(data)
        part = batch.part(index, count, trainer.rows_of(batch, size))
        gradients = trainer.gradients(part, totals)
        return [a + g for a, g in zip(sums, gradients, strict=True)]

    def update(sums: list[Any]) -> Any:
        # What comes out of the loop is on no device yet, and cannot be reduced from there.
        return trainer.update([tf.identity(one) for one in sums])

    totals, sums = strategy.run(begin, args=(data,))
    rows = strategy.experimental_local_results(totals.rows)[0]
    count = _turns(rows, replicas, size)

    def turn(index: Any, sums: list[Any]) -> tuple[Any, list[Any]]:
        return index + 1, strategy.run(accumulate, args=(data, index, count, totals, sums))

    _, sums = tf.while_loop(
        lambda index, _: index < count,
        turn,
        (tf.constant(0, tf.int64), sums),
        parallel_iterations=1,  # see `shrink.engine.accumulate.micro_batches`
    )
    return strategy.run(update, args=(sums,))


def _turns(rows: Any, replicas: int, size: Any) -> Any:
    """Return how many micro-batches the largest share of a global batch has, int64 ()."""
    largest = -(-rows // replicas)
    return tf.maximum(-(-largest // size), 1)
