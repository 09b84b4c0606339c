"""Global batches in, one share for each replica out."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shrink.engine.devices import Devices


def distribute_batches(batches: Any, devices: Devices) -> Any:
    """Return what Keras' `fit` takes: each step of it is one global batch, split over replicas.

    Shares differ by one example at most, and are empty where there are fewer examples than
    replicas. TensorFlow's own rebatching leaves whole replicas without work instead: of 13
    examples in batches of 24, three replicas get 8, 5 and none.

    Each machine reads whole global batches and keeps the shares of its own replicas.

    Args:
        batches: a `tf.data.Dataset` of structures of (n, ...) tensors.
        devices: where the replicas are.
    """
    if devices.replicas == 1:
        return batches
    local = len(devices.device_names)
    first = devices.worker * local
    shares = batches.flat_map(lambda *batch: _split(batch, devices.replicas, first, first + local))
    return devices.strategy.distribute_datasets_from_function(lambda _: shares)


def _split(batch: tuple[Any, ...], replicas: int, first: int, last: int) -> Any:
    """Return the shares of the replicas from `first` up to `last`."""
    rows = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]

    def share(replica: Any) -> Any:
        start, stop = rows * replica // replicas, rows * (replica + 1) // replicas
        return tf.nest.map_structure(lambda tensor: tensor[start:stop], batch)

    return tf.data.Dataset.range(first, last).map(share)


def smallest_batch(examples: int, batch_size: int) -> int:
    """Return the size of the smallest batch of an epoch; 0 without examples."""
    return examples % batch_size or min(examples, batch_size)
