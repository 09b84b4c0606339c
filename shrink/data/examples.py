"""The interface of every data source: examples by index."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from shrink.base.errors import DataError
from shrink.base.types import Specs, Tensors, leaves
from shrink.tflite.lazy import tf

T = TypeVar("T")
SPLIT_NAMES = ("train", "validation", "test")
"""The splits of every data set."""

_READING_BYTES = 16 * 1000**2
_MOST_READ = 512


Batch: TypeAlias = tuple[Tensors, Tensors]
"""Inputs and targets of some examples, (n, ...) each: tensors in a graph, else arrays."""


_ALIGNMENT = 64
"""Bytes, what Eigen asks for; arrays that begin elsewhere are copied into TensorFlow's memory."""


def in_host_memory(batch: Tensors) -> Tensors:
    """Return a structure of tensors, (n, ...) each, copied into numpy's memory; in a graph.

    A batch waits in host memory whatever the device. On a CPU the device's allocator is the host's:
    batches that come and go during a step take its free chunks, so that equal steps would have
    different peaks. Strings stay where they are.
    """
    tensors = tf.nest.flatten(batch)
    moved = [i for i, tensor in enumerate(tensors) if tensor.dtype != tf.string]
    copies = tf.numpy_function(
        lambda *arrays: [aligned_copy(array) for array in arrays],
        [tensors[i] for i in moved],
        [tensors[i].dtype for i in moved],
    )
    for i, copy in zip(moved, copies, strict=True):
        copy.set_shape(tensors[i].shape)
        tensors[i] = copy
    return tf.nest.pack_sequence_as(batch, tensors)


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """Return a copy whose first byte is at a multiple of 64; strings and objects as they are."""
    if array.dtype.kind in "OSU":
        return array
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class Examples(abc.ABC):
    """A sequence of examples, read by index; inputs and targets in their stored dtype.

    Attributes:
        labels: integer labels, int64 (n,), known without reading inputs; None for other targets.
        own_failure: of `aligned_arrays`; see `failure`.
        is_augmented: whether they differ from epoch to epoch when they are trained on.
        needs_whole_batch: whether an augmented example depends on the others of its batch.
    """

    labels: np.ndarray | None = None
    own_failure: DataError | None = None
    is_augmented = False
    needs_whole_batch = False

    @functools.cached_property
    def input_spec(self) -> Specs:
        """`Spec` of one example's input (images: uint8), or a structure of them."""
        return ()

    @functools.cached_property
    def target_spec(self) -> Specs:
        """The same of its target."""
        return ()

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @property
    def failure(self) -> DataError | None:
        """Why an example could not be read in a `tf.data` graph, whose error does not say it."""
        return self.own_failure

    @abc.abstractmethod
    def arrays(self, indices: np.ndarray) -> Batch:
        """Return the batch `(x, y)` of int64 (b,) indices as numpy arrays.

        Raises:
            DataError: an example cannot be read.
        """

    def aligned_arrays(self, indices: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of a batch one after the other, copied into aligned memory.

        Raises:
            DataError: an example cannot be read, which `failure` says too.
        """
        try:
            return [aligned_copy(array) for array in tf.nest.flatten(self.arrays(indices))]
        except DataError as error:
            self.own_failure = error
            raise

    def load(self, indices: tf.Tensor) -> Batch:
        """Return the batch `(x, y)` of int64 (b,) indices as tensors; can be traced."""
        return self.as_tensors(self.aligned_arrays, indices)

    def as_tensors(self, read: Callable[..., list[np.ndarray]], argument: tf.Tensor) -> Batch:
        """Return what a function of numpy reads as a batch `(x, y)` of tensors, in a graph."""
        specs = (self.input_spec, self.target_spec)
        flat = tf.nest.flatten(specs)
        batch = tf.numpy_function(read, [argument], [spec.dtype for spec in flat])
        for tensor, spec in zip(batch, flat, strict=True):
            tensor.set_shape((None, *spec.shape))
        return tf.nest.pack_sequence_as(specs, batch)

    @property
    def identified_by(self) -> str:
        """What `contents` are; only the same can be compared."""
        return f"inputs {' '.join(f'{s.dtype.name}{[*s.shape]}' for s in leaves(self.input_spec))}"

    def contents(self, indices: np.ndarray) -> Sequence[bytes]:
        """Return what identifies each of some examples: by default its inputs as stored."""
        inputs = leaves(self.arrays(indices)[0])
        rows = [np.ascontiguousarray(array).reshape(len(indices), -1) for array in inputs]
        return [b"".join(part[row].tobytes() for part in rows) for row in range(len(indices))]

    def prepare(self) -> None:  # noqa: B027  most have nothing to do
        """Do what has to be done before the first batch, such as filling a cache, once."""

    def draw(self, seed: int, epoch: int, indices: np.ndarray) -> np.ndarray:
        """Return the random numbers of some augmented examples, float32 (n, k)."""
        raise TypeError("the examples are not augmented")

    def load_augmented(self, indices: tf.Tensor, numbers: tf.Tensor) -> Batch:
        """Return the batch `(x, y)`, changed by the numbers drawn for it; can be traced."""
        raise TypeError("the examples are not augmented")


def single(values: tuple[T, ...]) -> T | tuple[T, ...]:
    """Return the only one of some values, or all of them."""
    return values[0] if len(values) == 1 else values


def example_bytes(*specs: Specs) -> int:
    """Return the size of one example, given its `Spec`s in any structure."""
    return sum(spec.nbytes for spec in leaves(specs))


def reading_batch(*specs: Specs) -> int:
    """Return how many examples to read at a time where all are gone through: 16 MB of them.

    Between 1 and 512: a batch that is counted alone takes gigabytes where examples are large.
    """
    return int(np.clip(_READING_BYTES // max(example_bytes(specs), 1), 1, _MOST_READ))
