"""What every source of data gives: examples by index."""

from __future__ import annotations

import abc
import functools
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from shrink.base.errors import DataError
from shrink.base.types import Specs, Tensors

if TYPE_CHECKING:
    import tensorflow as tf

T = TypeVar("T")
SPLIT_NAMES = ("train", "validation", "test")
"""The splits of every data set."""

_READING_BYTES = 16 * 1000**2
_MOST_READ = 512


Batch: TypeAlias = tuple[Tensors, Tensors]
"""Inputs and targets of some examples, (n, ...) each: tensors in a graph, else arrays."""


class Examples(Protocol):
    """A sequence of examples, read by index; inputs and targets in their stored dtype."""

    def __len__(self) -> int: ...

    @property
    def labels(self) -> np.ndarray | None:
        """Integer labels, int64 (n,), known without reading inputs; None for other targets."""

    @property
    def input_spec(self) -> Specs:
        """`tf.TensorSpec` of one example's input (images: uint8), or a structure of them."""

    @property
    def target_spec(self) -> Specs:
        """`tf.TensorSpec` of one example's target, or a structure of them."""

    def load(self, indices: tf.Tensor) -> Batch:
        """Return the batch `(x, y)` of int64 (b,) indices; can be traced by `tf.data`."""

    def arrays(self, indices: np.ndarray) -> Batch:
        """Return the batch `(x, y)` of int64 (b,) indices as numpy arrays, equal to `load`'s.

        Raises:
            DataError: an example cannot be read.
        """

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first of these examples that cannot be read, or None.

        An error inside a `tf.data` graph does not say which file it is about; this does.
        """


def single(values: tuple[T, ...]) -> T | tuple[T, ...]:
    """Return the only one of some values, or all of them."""
    return values[0] if len(values) == 1 else values


def example_bytes(*specs: Specs) -> int:
    """Return the size of one example, given its `tf.TensorSpec`s in any structure."""
    import tensorflow as tf

    flat = tf.nest.flatten(specs)
    return sum(int(np.prod(spec.shape.as_list() or [1])) * spec.dtype.size for spec in flat)


def reading_batch(*specs: Specs) -> int:
    """Return how many examples to read at a time where all are gone through: 16 MB of them.

    Between 1 and 512: a batch that is counted alone takes gigabytes where examples are large.
    """
    return int(np.clip(_READING_BYTES // max(example_bytes(specs), 1), 1, _MOST_READ))


def first_problem(examples: Examples, indices: np.ndarray) -> DataError | None:
    """Return the error of the first of these examples, int64 (n,), that cannot be read, or None."""
    step = reading_batch(examples.input_spec, examples.target_spec)
    for start in range(0, len(indices), step):
        try:
            examples.arrays(indices[start : start + step])
        except DataError as error:
            return error
    return None


@runtime_checkable
class AugmentedExamples(Protocol):
    """Examples that differ from epoch to epoch when they are trained on."""

    def draw(self, seed: int, epoch: int, indices: np.ndarray) -> np.ndarray:
        """Return the random numbers of some examples, float32 (n, k), by seed, epoch, index."""

    def load_augmented(self, indices: tf.Tensor, numbers: tf.Tensor) -> Batch:
        """Return the batch `(x, y)`, changed by the numbers drawn for it; can be traced."""


@runtime_checkable
class PreparedExamples(Protocol):
    """Examples that have something to do before their first batch, such as filling a cache."""

    def prepare(self) -> None:
        """Do it, unless it is done."""


class DerivedExamples:
    """Examples that others become, one for one; what a class does not change is theirs.

    Args:
        base: the others.
    """

    def __init__(self, base: Examples) -> None:
        self._base = base
        self.labels: np.ndarray | None = base.labels
        self.input_spec: Specs = base.input_spec
        self.target_spec: Specs = base.target_spec

    def __len__(self) -> int:
        return len(self._base)

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first example that cannot be read, or None."""
        return self._base.explain(indices)


class DecodedExamples(abc.ABC):
    """Examples that are read and decoded by `load`; arrays of them are what it gives on the CPU.

    Args:
        labels: integer labels, int64 (n,), or None.
        input_spec: see `Examples`.
        target_spec: see `Examples`.
    """

    def __init__(self, labels: np.ndarray | None, input_spec: Specs, target_spec: Specs) -> None:
        self.labels = labels
        self.input_spec = input_spec
        self.target_spec = target_spec

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def load(self, indices: tf.Tensor) -> Batch:
        """Return a batch as tensors."""

    @abc.abstractmethod
    def why_unreadable(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first of these examples, decoded one by one, or None."""

    def arrays(self, indices: np.ndarray) -> Batch:
        """Return a batch as arrays.

        Raises:
            DataError: an example cannot be read or decoded.
        """
        import tensorflow as tf

        chosen = np.asarray(indices, np.int64)
        try:
            x, y = tf.nest.map_structure(
                lambda tensor: tensor.numpy(), self._load_compiled(tf.constant(chosen))
            )
        except tf.errors.OpError as error:
            unreadable = self.why_unreadable(chosen)
            if unreadable is None:
                raise
            raise unreadable from error
        return x, y

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return the error of the first of these examples that cannot be used, or None."""
        return first_problem(self, indices)

    @functools.cached_property
    def _load_compiled(self) -> tf.types.experimental.GenericFunction:
        import tensorflow as tf

        # One op at a time, without a graph, decoding takes five times as long.
        def load(indices: tf.Tensor) -> Batch:
            with tf.device("CPU:0"):
                return self.load(indices)

        return tf.function(load, input_signature=[tf.TensorSpec([None], tf.int64)])
