"""Training examples that bring their teacher's answers along."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.examples import AugmentedExamples, Examples
from shrink.data.pipeline import epoch_order
from shrink.stages.distill.objective import Lesson
from shrink.stages.distill.rows import Rows


class TaughtExamples:
    """Training examples whose target is a `Lesson`: their own target and the teacher's row.

    Args:
        base: the examples.
        rows: how answers are stored.
        stored: (n, columns); None where only sizes matter, as for planning.
    """

    def __init__(self, base: Examples, rows: Rows, stored: np.ndarray | None) -> None:
        self._base = base
        self._rows = rows
        self._stored = stored

    def __len__(self) -> int:
        return len(self._base)

    @property
    def labels(self) -> np.ndarray | None:
        """Integer labels, int64 (n,), or None."""
        return self._base.labels

    @property
    def input_spec(self) -> Any:
        """The examples' own."""
        return self._base.input_spec

    @property
    def target_spec(self) -> Any:
        """A `Lesson` of the examples' own and a row."""
        spec = tf.TensorSpec((self._rows.columns,), tf.as_dtype(self._rows.dtype))
        return Lesson(self._base.target_spec, spec)

    def load(self, indices: tf.Tensor) -> tuple[Any, Any]:
        """Return a batch as tensors."""
        x, y = self._base.load(indices)
        return x, Lesson(y, self._look_up(self._answers, indices))

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return a batch as numpy arrays."""
        x, y = self._base.arrays(indices)
        return x, Lesson(y, self._answers(indices))

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first example that cannot be read, or None."""
        return self._base.explain(indices)

    def _look_up(self, answers: Any, keys: tf.Tensor) -> tf.Tensor:
        found = tf.numpy_function(answers, [keys], tf.as_dtype(self._rows.dtype))
        return tf.ensure_shape(found, (None, self._rows.columns))

    def _answers(self, indices: np.ndarray) -> np.ndarray:
        if self._stored is None:
            return np.zeros((len(indices), self._rows.columns), self._rows.dtype)
        return np.asarray(self._stored[indices])


class TaughtViews(TaughtExamples):
    """Augmented examples with the teacher's rows for each epoch's view of them.

    Args:
        base: augmented examples.
        rows: how answers are stored.
        stored: (epochs · n, columns), in the order of training; None where only sizes matter.
    """

    def draw(self, seed: int, epoch: int, indices: np.ndarray) -> np.ndarray:
        """Return the examples' random numbers with the epoch and their places in it, float32."""
        # A float32 holds every whole number below 2**24 exactly.
        places = _places(len(self), seed, epoch)[indices]
        key = np.stack([np.full(len(indices), epoch), places], axis=1)
        numbers = self._views.draw(seed, epoch, indices)
        return np.concatenate([numbers, key], axis=1, dtype=np.float32)

    def load_augmented(self, indices: tf.Tensor, numbers: tf.Tensor) -> tuple[Any, Any]:
        """Return the batch, changed by the numbers drawn for it, with the answers to it."""
        x, y = self._views.load_augmented(indices, numbers[:, :-2])
        return x, Lesson(y, self._look_up(self._answers_to_views, numbers[:, -2:]))

    @property
    def _views(self) -> AugmentedExamples:
        if not isinstance(self._base, AugmentedExamples):
            raise TypeError("the examples are not augmented")
        return self._base

    def _answers_to_views(self, key: np.ndarray) -> np.ndarray:
        epochs, places = key.astype(np.int64).T
        return self._answers(epochs * len(self) + places)


@functools.lru_cache(maxsize=2)
def _places(n: int, seed: int, epoch: int) -> np.ndarray:
    """Return each example's place in the order of an epoch, int64 (n,)."""
    return np.argsort(epoch_order(n, seed, epoch))
