"""Examples with a teacher's outputs beside them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.examples import AugmentedExamples, Examples
from shrink.data.pipeline import epoch_order
from shrink.stages.distill.objective import DistillationTargets, TeacherOutputs

CacheDtype = Literal["float32", "float16", "topk"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """How outputs and features become rows: flattened one after the other, in one dtype.

    topk keeps, at each position of an output, the k largest logits with their classes, and one
    logit that all the others share, with which their probability at T = 1 is what it was.

    Attributes:
        outputs: shape of each output of one example.
        features: shape of each feature of one example.
        cache_dtype: float32, float16, or topk, whose numbers are float32.
        top_k: k; an output of at most 2k + 1 classes is kept whole.
    """

    outputs: tuple[Shape, ...]
    features: tuple[Shape, ...] = ()
    cache_dtype: CacheDtype = "float32"
    top_k: int = 16

    @property
    def is_known(self) -> bool:
        """Whether all sides of all shapes are known, without which there are no rows."""
        return all(side > 0 for shape in (*self.outputs, *self.features) for side in shape)

    @property
    def dtype(self) -> Any:
        """The numpy dtype of a row's numbers."""
        return np.dtype(np.float16 if self.cache_dtype == "float16" else np.float32)

    @property
    def columns(self) -> int:
        """Numbers in a row."""
        return sum(self._widths())

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.columns * int(self.dtype.itemsize)

    def encode(self, taught: TeacherOutputs) -> Any:
        """Return (n, columns) in `dtype`."""
        parts = [
            self._sparse(logits) if self._is_sparse(shape) else logits
            for logits, shape in zip(taught.outputs, self.outputs, strict=True)
        ]
        everything = [*parts, *taught.features]
        flat = [tf.reshape(p, (tf.shape(p)[0], -1)) for p in everything]
        return tf.cast(tf.concat(flat, axis=-1), tf.as_dtype(self.dtype))

    def decode(self, rows: Any) -> TeacherOutputs:
        """Return what `encode` was given, as float32; (n, columns) in."""
        parts = tf.split(tf.cast(rows, tf.float32), self._widths(), axis=-1)
        count = len(self.outputs)
        outputs = [
            self._dense(part, shape) if self._is_sparse(shape) else _shaped(part, shape)
            for part, shape in zip(parts[:count], self.outputs, strict=True)
        ]
        features = map(_shaped, parts[count:], self.features)
        return TeacherOutputs(tuple(outputs), tuple(features))

    def _widths(self) -> list[int]:
        return [self._width(shape) for shape in self.outputs] + [
            math.prod(shape) for shape in self.features
        ]

    def _width(self, shape: Shape) -> int:
        if not self._is_sparse(shape):
            return math.prod(shape)
        return math.prod(shape[:-1]) * (2 * self.top_k + 1)

    def _is_sparse(self, shape: Shape) -> bool:
        return self.cache_dtype == "topk" and bool(shape) and shape[-1] > 2 * self.top_k + 1

    def _sparse(self, logits: Any) -> Any:
        """Return [k largest, their classes, the others' shared logit], (n, ..., 2k + 1)."""
        largest, classes = tf.math.top_k(logits, self.top_k)
        kept = tf.reduce_sum(tf.one_hot(classes, logits.shape[-1]), axis=-2) > 0
        others = tf.where(kept, tf.cast(-np.inf, logits.dtype), logits)
        shared = tf.reduce_logsumexp(others, axis=-1, keepdims=True)
        shared -= math.log(logits.shape[-1] - self.top_k)
        # A float32 holds every class number below 2**24 exactly.
        return tf.concat([largest, tf.cast(classes, logits.dtype), shared], axis=-1)

    def _dense(self, part: Any, shape: Shape) -> Any:
        entries = _shaped(part, (*shape[:-1], 2 * self.top_k + 1))
        largest, classes, shared = tf.split(entries, [self.top_k, self.top_k, 1], axis=-1)
        places = tf.one_hot(tf.cast(classes, tf.int32), shape[-1], dtype=largest.dtype)
        kept = tf.reduce_sum(places, axis=-2)
        return tf.reduce_sum(places * largest[..., None], axis=-2) + (1 - kept) * shared


def shapes_of(tensors: Sequence[Any]) -> tuple[Shape, ...]:
    """Return the shapes of one example of Keras tensors; -1 for an unknown side."""
    return tuple(tuple(side or -1 for side in tensor.shape[1:]) for tensor in tensors)


def _shaped(part: Any, shape: Shape) -> Any:
    return tf.reshape(part, (-1, *shape))


class DistillationExamples:
    """Training examples with `DistillationTargets`: their own targets and the teacher's row.

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
        """A `DistillationTargets` of the examples' own and a row."""
        spec = tf.TensorSpec((self._rows.columns,), tf.as_dtype(self._rows.dtype))
        return DistillationTargets(self._base.target_spec, spec)

    def load(self, indices: tf.Tensor) -> tuple[Any, Any]:
        """Return a batch as tensors."""
        x, y = self._base.load(indices)
        return x, DistillationTargets(y, self._look_up(self._answers, indices))

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return a batch as numpy arrays."""
        x, y = self._base.arrays(indices)
        return x, DistillationTargets(y, self._answers(indices))

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


class DistillationViews(DistillationExamples):
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
        return x, DistillationTargets(y, self._look_up(self._answers_to_views, numbers[:, -2:]))

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
