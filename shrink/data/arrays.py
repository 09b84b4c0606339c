"""Examples that are rows of arrays, in memory or on the disk."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.examples import first_problem
from shrink.data.host_memory import load_arrays


class Rows(Protocol):
    """An array (rows, ...) that is read by rows: a `np.ndarray`, or a file's stand-in for one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""

    @property
    def dtype(self) -> np.dtype:
        """Stored dtype."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> np.ndarray: ...


class ArrayExamples:
    """Some rows of input arrays and target arrays; batches are gathered, never copied whole.

    Args:
        x: (rows, ...) inputs, or a tuple of them; what is on the disk stays there.
        y: (rows, ...) targets, or a tuple of them; a single int64 (rows,) holds labels.
        indices: int64 (n,), the rows that are these examples.
        x_dtype: the dtype that inputs are fed in, where it is not that of `x`, structured as `x`.
        y_dtype: the same for targets.
    """

    def __init__(
        self, x: Any, y: Any, indices: np.ndarray, x_dtype: Any = None, y_dtype: Any = None
    ) -> None:
        self._x = x
        self._y = y
        self._indices = indices
        self._x_dtype = x_dtype or tf.nest.map_structure(_native, x)
        self._y_dtype = y_dtype or tf.nest.map_structure(_native, y)
        self.labels: np.ndarray | None = y[indices] if are_labels(y) else None

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def input_spec(self) -> Any:
        """One row of `x`."""
        return tf.nest.map_structure(_row_spec, self._x, self._x_dtype)

    @property
    def target_spec(self) -> Any:
        """One row of `y`."""
        return tf.nest.map_structure(_row_spec, self._y, self._y_dtype)

    def load(self, indices: tf.Tensor) -> tuple[Any, Any]:
        """Return a batch as tensors: one gather, in numpy."""
        return load_arrays(self.arrays, indices, (self.input_spec, self.target_spec))

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return a batch as arrays of its own.

        Raises:
            DataError: a value in a file is not finite, or cannot be read.
        """
        rows = self._indices[indices]

        def gather(array: Rows, dtype: Any) -> np.ndarray:
            return np.asarray(array[rows], dtype)

        x = tf.nest.map_structure(gather, self._x, self._x_dtype)
        return x, tf.nest.map_structure(gather, self._y, self._y_dtype)

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first row that cannot be used; arrays were checked before."""
        parts = tf.nest.flatten((self._x, self._y))
        if all(isinstance(array, np.ndarray) for array in parts):
            return None
        return first_problem(self, indices)


def are_labels(y: Any) -> bool:
    """Whether targets are integer labels, int64 (n,)."""
    return isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype == np.int64


def row_bytes(array: Rows) -> int:
    """Return the size of one row."""
    return int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize


def row_numbers(rows: Any, count: int) -> np.ndarray:
    """Return the numbers that an index of `count` rows means, a slice or numbers themselves."""
    return np.arange(*rows.indices(count)) if isinstance(rows, slice) else np.asarray(rows)


def _native(array: Rows) -> np.dtype:
    return array.dtype.newbyteorder("=")


def _row_spec(array: Rows, dtype: Any) -> tf.TensorSpec:
    return tf.TensorSpec(array.shape[1:], tf.as_dtype(dtype))
