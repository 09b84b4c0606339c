"""Examples by index, and the three parts of a data set that a recipe works on."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from shrink.data.config import DataConfig, NormalizeConfig
from shrink.errors import DataError

SOURCES: dict[str, str] = {
    "digits": "shrink.data.sources.digits",
    "images": "shrink.data.sources.images",
    "npz": "shrink.data.sources.npz",
}
"""Every `data.source`: the module with its `open_source(config, seed) -> Dataset`."""


class Examples(Protocol):
    """A sequence of examples, read by index; inputs and targets in their stored dtype."""

    def __len__(self) -> int: ...

    @property
    def labels(self) -> np.ndarray | None:
        """Integer labels, int64 (n,), known without reading inputs; None for other targets."""

    @property
    def input_spec(self) -> Any:
        """`tf.TensorSpec` of one example's input (pictures: uint8), or a structure of them."""

    @property
    def target_spec(self) -> Any:
        """`tf.TensorSpec` of one example's target, or a structure of them."""

    def load(self, indices: tf.Tensor) -> tuple[Any, Any]:
        """Return the batch `(x, y)` of int64 (b,) indices; can be traced by `tf.data`."""

    def arrays(self, indices: np.ndarray) -> tuple[Any, Any]:
        """Return the batch `(x, y)` of int64 (b,) indices as numpy arrays, equal to `load`'s.

        Raises:
            DataError: an example cannot be read.
        """

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first of these examples that cannot be read, or None.

        An error inside a `tf.data` graph does not say which file it is about; this does.
        """


@dataclass(frozen=True)
class Dataset:
    """The parts of a data set.

    Attributes:
        class_names: name of each integer label, empty where targets are real.
        num_classes: number of classes, None where targets are real.
        notes: what a reader of the report should know of how the data was read.
    """

    train: Examples
    validation: Examples
    test: Examples
    class_names: tuple[str, ...]
    num_classes: int | None
    notes: tuple[str, ...] = ()


def open_dataset(config: DataConfig, seed: int) -> Dataset:
    """Open what a recipe's `data` section names, split and transformed as it says.

    Args:
        config: the `data` section; its path is absolute or relative to the working folder.
        seed: decides splits that the source does not give.

    Raises:
        DataError: missing, unreadable, refused, or inconsistent data.
    """
    source = importlib.import_module(SOURCES[config.source])
    dataset: Dataset = source.open_source(config, seed)
    if config.normalize is None and config.target == "label":
        return dataset

    def view(examples: Examples) -> Examples:
        return _View(examples, config.normalize, config.target == "input")

    targets_are_inputs = config.target == "input"
    return Dataset(
        train=view(dataset.train),
        validation=view(dataset.validation),
        test=view(dataset.test),
        class_names=() if targets_are_inputs else dataset.class_names,
        num_classes=None if targets_are_inputs else dataset.num_classes,
        notes=dataset.notes,
    )


class _View:
    """Examples with normalized inputs, or with the input as the target, or both."""

    def __init__(
        self, base: Examples, normalize: NormalizeConfig | None, target_is_input: bool
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


def _float_tensor(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32)


def _float_array(x: np.ndarray) -> np.ndarray:
    return np.asarray(x, np.float32)
