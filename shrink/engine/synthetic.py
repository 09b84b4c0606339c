"""Examples without data: zeros of the right shapes and dtypes, for measuring memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.examples import Examples
from shrink.data.host_memory import load_arrays


class ZeroExamples:
    """As many examples as another sequence has, or as asked, all of them zeros.

    A batch of them takes the memory of a batch of the others in their stored dtype, and class 0
    is a label of every classifier.

    Args:
        input_spec: `tf.TensorSpec` of one example's input, or a structure of them.
        target_spec: the same of its target.
        count: how many examples.
    """

    labels: np.ndarray | None = None

    def __init__(self, input_spec: Any, target_spec: Any, count: int) -> None:
        self.input_spec = input_spec
        self.target_spec = target_spec
        self._count = count

    @classmethod
    def like(cls, examples: Examples, count: int | None = None) -> ZeroExamples:
        """Return zeros in place of `examples`."""
        count = len(examples) if count is None else count
        return cls(examples.input_spec, examples.target_spec, count)

    def __len__(self) -> int:
        return self._count

    def load(self, indices: tf.Tensor) -> tuple[Any, Any]:
        """Return a batch of zeros."""
        return load_arrays(self.arrays, indices, (self.input_spec, self.target_spec))

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return a batch of zeros as arrays."""

        def zeros(spec: tf.TensorSpec) -> np.ndarray:
            return np.zeros((len(indices), *spec.shape), spec.dtype.as_numpy_dtype)

        return tf.nest.map_structure(zeros, (self.input_spec, self.target_spec))

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return None: there is nothing to read."""
        return None
