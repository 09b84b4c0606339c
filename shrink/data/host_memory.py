"""Batches in numpy's memory, which TensorFlow reads where it is and its allocator does not count.

A batch waits in host memory whatever the device. On a CPU the device's allocator is the host's,
and batches that came and went during a step took its free chunks, up to twice their own size: the
same step then had another peak.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_ALIGNMENT = 64
"""Bytes, what Eigen asks for; arrays that begin elsewhere are copied into TensorFlow's memory."""


def in_host_memory(batch: Any) -> Any:
    """Return a structure of tensors, (n, ...) each, copied into numpy's memory; in a graph.

    Strings stay where they are.
    """
    tensors = tf.nest.flatten(batch)
    moved = [i for i, tensor in enumerate(tensors) if tensor.dtype != tf.string]
    copies = tf.numpy_function(
        _aligned, [tensors[i] for i in moved], [tensors[i].dtype for i in moved]
    )
    for i, copy in zip(moved, copies, strict=True):
        copy.set_shape(tensors[i].shape)
        tensors[i] = copy
    return tf.nest.pack_sequence_as(batch, tensors)


def load_arrays(arrays: Callable[[np.ndarray], Any], indices: tf.Tensor, specs: Any) -> Any:
    """Return what `arrays` returns for int64 (b,) indices as tensors; in a graph.

    Args:
        arrays: from indices to a structure of arrays, (b, ...) each.
        indices: int64 (b,).
        specs: a `tf.TensorSpec` of one example for each array.
    """
    flat = tf.nest.flatten(specs)

    def load(rows: np.ndarray) -> list[np.ndarray]:
        return [aligned_copy(array) for array in tf.nest.flatten(arrays(rows))]

    batch = tf.numpy_function(load, [indices], [spec.dtype for spec in flat])
    for tensor, spec in zip(batch, flat, strict=True):
        tensor.set_shape((indices.shape[0], *spec.shape))
    return tf.nest.pack_sequence_as(specs, batch)


def _aligned(*arrays: np.ndarray) -> list[np.ndarray]:
    return [aligned_copy(array) for array in arrays]


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a copy whose first byte is at a multiple of 64; strings and objects as they are."""
    if array.dtype.kind in "OSU":
        return array
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
