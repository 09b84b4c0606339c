"""Examples as a recipe wants them: augmented, normalized, with the input as the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.augment.apply import Augmentation
from shrink.data.config import NormalizeConfig
from shrink.data.examples import Examples, PreparedExamples


class View:
    """Examples with normalized inputs, or with the input as the target, or both."""

    def __init__(
        self,
        base: Examples,
        normalize: NormalizeConfig | None,
        target_is_input: bool,
    ) -> None:
        self._base = base
        self._normalize = normalize
        self._target_is_input = target_is_input

    def __len__(self) -> int:
        return len(self._base)

    @property
    def labels(self) -> np.ndarray | None:
        """Integer labels, int64 (n,), unless the target is the input."""
        return None if self._target_is_input else self._base.labels

    @property
    def input_spec(self) -> Any:
        """The stored specification; float32 where inputs are normalized."""
        spec = self._base.input_spec
        if self._normalize is None:
            return spec
        return tf.nest.map_structure(lambda s: tf.TensorSpec(s.shape, tf.float32), spec)

    @property
    def target_spec(self) -> Any:
        """The input's specification where the target is the input."""
        return self.input_spec if self._target_is_input else self._base.target_spec

    def prepare(self) -> None:
        """Have the examples below do what they do before their first batch."""
        if isinstance(self._base, PreparedExamples):
            self._base.prepare()

    def load(self, indices: tf.Tensor) -> tuple[Any, Any]:
        """Return a batch as tensors."""
        return self._transformed(*self._base.load(indices), _float_tensor)

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return a batch as numpy arrays."""
        return self._transformed(*self._base.arrays(indices), _float_array)

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first example that cannot be read, or None."""
        return self._base.explain(indices)

    def _transformed(self, x: Any, y: Any, to_float: Callable[[Any], Any]) -> tuple[Any, Any]:
        if self._normalize is not None:
            scale, offset = np.float32(self._normalize.scale), np.float32(self._normalize.offset)
            x = tf.nest.map_structure(lambda part: to_float(part) * scale + offset, x)
        return x, (x if self._target_is_input else y)


class AugmentedView(View):
    """A view with random changes where its examples are trained on: `load_augmented`.

    They work on inputs as stored, before they are normalized; `load` and `arrays` are free of
    them.
    """

    def __init__(
        self,
        base: Examples,
        normalize: NormalizeConfig | None,
        target_is_input: bool,
        augmentation: Augmentation,
    ) -> None:
        super().__init__(base, normalize, target_is_input)
        self._augmentation = augmentation

    def draw(self, seed: int, epoch: int, indices: np.ndarray) -> np.ndarray:
        """Return the random numbers of some examples, float32 (n, k)."""
        return self._augmentation.draw(seed, epoch, indices)

    def load_augmented(self, indices: tf.Tensor, numbers: tf.Tensor) -> tuple[Any, Any]:
        """Return a batch as tensors, changed by the numbers drawn for it."""
        changed = self._augmentation.apply(*self._base.load(indices), numbers)
        return self._transformed(*changed, _float_tensor)


def _float_tensor(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


def _float_array(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.float32)
