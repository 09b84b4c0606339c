"""Views of examples: subsets, augmented, normalized, or with the input as the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shrink.base.errors import DataError
from shrink.base.types import Spec, Tensors
from shrink.data.augment import Augmentation
from shrink.data.config import NormalizeConfig
from shrink.data.examples import Batch, Examples
from shrink.tflite.lazy import tf


class View(Examples):
    """Examples of others, changed in the order of the arguments.

    Args:
        base: the others, as stored.
        rows: int64 (n,), which of them; by default all.
        augmentation: random changes of `load_augmented`; `load` and `arrays` are free of them.
        normalize: how inputs become float32, or None.
        target_is_input: whether examples have no other target, and so no labels.
        inputs: places of the inputs in the order that a model takes them.
        targets: likewise of the targets.
    """

    def __init__(
        self,
        base: Examples,
        *,
        rows: np.ndarray | None = None,
        augmentation: Augmentation | None = None,
        normalize: NormalizeConfig | None = None,
        target_is_input: bool = False,
        inputs: Sequence[int] | None = None,
        targets: Sequence[int] | None = None,
    ) -> None:
        self._base, self._rows, self._augmentation = base, rows, augmentation
        self._normalize, self._target_is_input = normalize, target_is_input
        self._inputs, self._targets = inputs, targets
        self.labels = base.labels if rows is None or base.labels is None else base.labels[rows]
        x, y = base.input_spec, base.target_spec
        if normalize is not None:
            x = _each(lambda spec: Spec(spec.shape, np.dtype(np.float32)), x)
        if target_is_input:
            self.labels, y = None, x
        self.input_spec, self.target_spec = _picked(x, inputs), _picked(y, targets)
        self.is_augmented = augmentation is not None or base.is_augmented
        self.needs_whole_batch = base.needs_whole_batch or (
            augmentation is not None and augmentation.mixes
        )

    def __len__(self) -> int:
        return len(self._base) if self._rows is None else len(self._rows)

    def prepare(self) -> None:
        """Prepare the examples below."""
        self._base.prepare()

    def arrays(self, indices: np.ndarray) -> Batch:
        """Return a batch as arrays."""
        rows = indices if self._rows is None else self._rows[indices]
        return self._transformed(*self._base.arrays(rows))

    @property
    def failure(self) -> DataError | None:
        """Why an example could not be read, or the user's function failed."""
        augmenting = None if self._augmentation is None else self._augmentation.failure
        return self.own_failure or augmenting or self._base.failure

    def draw(self, seed: int, epoch: int, indices: np.ndarray) -> np.ndarray:
        """Return the random numbers of some examples, float32 (n, k), by seed, epoch, index."""
        return (self._augmentation or self._base).draw(seed, epoch, indices)

    def load_augmented(self, indices: tf.Tensor, numbers: tf.Tensor) -> Batch:
        """Return a batch as tensors, changed by the numbers drawn for it."""
        rows = indices if self._rows is None else tf.gather(tf.constant(self._rows), indices)
        if self._augmentation is None:
            return self._transformed(*self._base.load_augmented(rows, numbers))
        return self._transformed(*self._augmentation.apply(*self._base.load(rows), numbers))

    def _transformed(self, x: Tensors, y: Tensors) -> Batch:
        if self._normalize is not None:
            scale, offset = np.float32(self._normalize.scale), np.float32(self._normalize.offset)

            def normalized(part: Any) -> Any:
                if not isinstance(part, np.ndarray):
                    return tf.cast(part, tf.float32) * scale + offset
                values = np.multiply(part, scale, dtype=np.float32, casting="unsafe")
                values += offset
                return values

            x = _each(normalized, x)
        y = x if self._target_is_input else y
        return _picked(x, self._inputs), _picked(y, self._targets)


def _each(function: Callable[[Any], Any], values: Tensors) -> Tensors:
    """Return what a function makes of one array, or of each of a tuple."""
    return tuple(map(function, values)) if isinstance(values, tuple) else function(values)


def _picked(values: Tensors, places: Sequence[int] | None) -> Tensors:
    if places is None or not isinstance(values, tuple):
        return values
    return tuple(values[place] for place in places)
