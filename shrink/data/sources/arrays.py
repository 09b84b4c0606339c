"""Examples that are rows of arrays, in memory or mapped from a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from shrink.errors import DataError


class ArrayExamples:
    """Some rows of an input array and a target array; batches are gathered, never copied whole.

    Args:
        x: (rows, ...) inputs; a `np.memmap` stays on the disk.
        y: (rows, ...) targets; int64 (rows,) are labels.
        indices: int64 (n,), the rows that are these examples.
        x_dtype: the dtype that inputs are fed in, where it is not that of `x`.
        y_dtype: the same for targets.
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        indices: np.ndarray,
        x_dtype: Any = None,
        y_dtype: Any = None,
    ) -> None:
        self._x = x
        self._y = y
        self._indices = indices
        self._x_dtype = np.dtype(x_dtype or x.dtype.newbyteorder("="))
        self._y_dtype = np.dtype(y_dtype or y.dtype.newbyteorder("="))
        self.labels: np.ndarray | None = y[indices] if are_labels(y) else None

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def input_spec(self) -> tf.TensorSpec:
        """One row of `x`."""
        return tf.TensorSpec(self._x.shape[1:], tf.as_dtype(self._x_dtype))

    @property
    def target_spec(self) -> tf.TensorSpec:
        """One row of `y`."""
        return tf.TensorSpec(self._y.shape[1:], tf.as_dtype(self._y_dtype))

    def load(self, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a batch as tensors: one gather, in numpy."""
        specs = (self.input_spec, self.target_spec)
        batch = tf.numpy_function(self.arrays, [indices], [spec.dtype for spec in specs])
        for tensor, spec in zip(batch, specs, strict=True):
            tensor.set_shape((indices.shape[0], *spec.shape))
        return batch[0], batch[1]

    def arrays(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a batch as arrays of its own."""
        rows = self._indices[indices]
        return np.asarray(self._x[rows], self._x_dtype), np.asarray(self._y[rows], self._y_dtype)

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return None: arrays were checked when they were opened."""
        return None


def are_labels(y: np.ndarray) -> bool:
    """Whether targets are integer labels, int64 (n,)."""
    return y.ndim == 1 and y.dtype == np.int64
