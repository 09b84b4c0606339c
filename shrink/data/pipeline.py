"""Batches as pure functions of the seed and the step, so that a resumed run sees the same ones."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from shrink.data.examples import Batch, Examples, example_bytes, in_host_memory
from shrink.data.splits import permutation
from shrink.tflite.lazy import tf

PREFETCH_BYTES = 64 * 1000**2
"""Most host memory of batches that wait or are being read; one batch is always allowed."""

Share: TypeAlias = tuple[int, int]
"""Which of how many machines reads its part of each batch."""
ALL: Share = (0, 1)
Loader: TypeAlias = "Callable[[tf.Tensor], Batch]"
"""From the number of a step, int64 (), to its batch."""


def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """Return the order of `n` examples in one epoch: an int64 (n,) permutation."""
    return permutation(n, seed, epoch)


def training_batches(
    examples: Examples,
    *,
    global_batch_size: int,
    seed: int,
    first_step: int,
    last_step: int,
    share: Share = ALL,
) -> tf.data.Dataset:
    """Return the global batches `(x, y)` of the steps from `first_step` up to `last_step`.

    Args:
        examples: what to train on.
        global_batch_size: examples per step; the last step of an epoch takes what is left.
        seed: decides the order of each epoch.
        first_step: the first step, counted from 0 over all epochs.
        last_step: the step after the last one.
        share: of every batch.

    Step `s` belongs to epoch `s // ceil(n / global_batch_size)`. The batch size of every element
    is unknown to the graph, all other dimensions are static.
    """
    n = len(examples)
    per_epoch = -(-n // global_batch_size)
    order_of = functools.lru_cache(maxsize=2)(functools.partial(epoch_order, n, seed))

    def indices_of(step: int) -> np.ndarray:
        epoch, step_of_epoch = divmod(int(step), per_epoch)
        start = step_of_epoch * global_batch_size
        return order_of(epoch)[start : start + global_batch_size]

    def numbers_of(step: int, indices: np.ndarray) -> np.ndarray:
        return examples.draw(seed, int(step) // per_epoch, indices)

    draws = numbers_of if examples.is_augmented else None
    load = _loader(examples, indices_of, share, draws)
    steps = tf.data.Dataset.range(first_step, last_step)
    return _batches(examples, steps, load, -(-min(n, global_batch_size) // share[1]))


def evaluation_batches(
    examples: Examples,
    batch_size: int,
    indices: np.ndarray | None = None,
    share: Share = ALL,
) -> tf.data.Dataset:
    """Return `(x, y)` batches in order; the last one may be smaller.

    Args:
        examples: what to evaluate on.
        batch_size: examples per batch.
        indices: int64 (m,), which examples; by default all of them.
        share: of every batch.
    """
    chosen = np.arange(len(examples)) if indices is None else np.asarray(indices, np.int64)

    def indices_of(step: int) -> np.ndarray:
        return chosen[int(step) * batch_size : (int(step) + 1) * batch_size]

    steps = tf.data.Dataset.range(-(-len(chosen) // batch_size))
    load = _loader(examples, indices_of, share)
    return _batches(examples, steps, load, -(-min(max(len(chosen), 1), batch_size) // share[1]))


@contextlib.contextmanager
def naming_bad_examples(*parts: Examples) -> Iterator[None]:
    """Turn TensorFlow's error about an example into a `DataError` that names its file.

    Wrap what consumes the batches of `parts`, such as a training loop. An error about something
    else passes unchanged.

    Raises:
        DataError: an example of `parts` could not be read.
    """
    try:
        yield
    except (tf.errors.ResourceExhaustedError, tf.errors.CancelledError):
        raise  # about memory or an end asked for: no example is to blame
    except tf.errors.OpError as error:
        for examples in parts:
            if examples.failure is not None:
                raise examples.failure from error
        raise


def _loader(
    examples: Examples,
    indices_of: Callable[[int], np.ndarray],
    share: Share,
    numbers_of: Callable[[int, np.ndarray], np.ndarray] | None = None,
) -> Loader:
    worker, workers = share

    def rows_of(indices: np.ndarray) -> tuple[int, int]:
        return len(indices) * worker // workers, len(indices) * (worker + 1) // workers

    def read(step: int) -> list[np.ndarray]:
        indices = indices_of(step)
        start, stop = rows_of(indices)
        # No source can read nothing: an empty share is a row that is cut off.
        arrays = examples.aligned_arrays(indices[start : max(stop, start + 1)])
        return [array[: stop - start] for array in arrays]

    def draw(step: int) -> tuple[np.ndarray | np.int64, ...]:
        assert numbers_of is not None, "load() draws only where there are numbers to draw"
        indices = indices_of(step)
        start, stop = rows_of(indices)
        if not examples.needs_whole_batch:
            indices, start, stop = indices[start : max(stop, start + 1)], 0, stop - start
        return (np.int64(start), np.int64(stop), indices, numbers_of(step, indices))

    def load(step: tf.Tensor) -> Batch:
        if numbers_of is None:
            return examples.as_tensors(read, step)
        dtypes = [*[tf.int64] * 3, tf.float32]
        start, stop, indices, numbers = tf.numpy_function(draw, [step], dtypes)
        batch = examples.load_augmented(tf.ensure_shape(indices, [None]), numbers)
        if workers > 1:
            start, stop = tf.ensure_shape(start, []), tf.ensure_shape(stop, [])
            batch = tf.nest.map_structure(lambda tensor: tensor[start:stop], batch)
        return in_host_memory(batch)

    return load


def _batches(
    examples: Examples, steps: tf.data.Dataset, load: Loader, largest_batch: int
) -> tf.data.Dataset:
    examples.prepare()
    # Holds at most this many batches, read or being read.
    waiting = batches_waiting(examples, largest_batch)
    batches = steps.map(load, num_parallel_calls=waiting, deterministic=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    options.deterministic = True
    # Its own threads: training may leave itself one, which must not wait for a batch to be read.
    options.threading.private_threadpool_size = _cores()
    return batches.with_options(options)


def batches_waiting(examples: Examples, batch_size: int) -> int:
    """Return how many batches wait, or are being read, beside the one that is trained on."""
    batch_bytes = min(len(examples), batch_size) * example_bytes(
        examples.input_spec, examples.target_spec
    )
    return int(np.clip(PREFETCH_BYTES // max(batch_bytes, 1), 1, _cores() + 1))


def _cores() -> int:
    return len(os.sched_getaffinity(0))
