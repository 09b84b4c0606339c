"""Batches that TensorFlow's allocator does not count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from shrink.data.arrays import unmapped
from shrink.data.examples import aligned_copy, in_host_memory
from shrink.measure.memory import AllocatorPeak


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (7, 4, 3)])
def test_aligned_copy_equals_its_array_and_begins_at_64_bytes(
    dtype: type, shape: tuple[int, ...]
) -> None:
    array: np.ndarray = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    copy = aligned_copy(array)
    assert (copy.dtype, copy.shape) == (array.dtype, array.shape)
    assert np.array_equal(copy, array)
    assert array.size == 0 or copy.ctypes.data % 64 == 0
    assert not np.shares_memory(copy, array)


def test_in_host_memory_keeps_batches_out_of_the_allocator() -> None:
    memory = AllocatorPeak()
    if memory.note:
        pytest.skip(memory.note)

    def load(step: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return tf.fill([4, 2**20], tf.cast(step, tf.float32)), {"name": tf.fill([4], "a")}

    steps = tf.data.Dataset.range(3)
    counted = list(steps.map(load))
    held = memory.held() or 0
    batches = list(steps.map(load).map(lambda *batch: in_host_memory(batch)))
    assert (memory.held() or 0) - held < 2**20
    assert [float(x[3, -1]) for x, _ in batches] == [0.0, 1.0, 2.0]
    assert batches[0][0].shape == counted[0][0].shape
    assert batches[0][1]["name"].numpy().tolist() == [b"a"] * 4


def test_unmapped_closes_its_file_with_the_last_reference(tmp_path: Path) -> None:
    file = tmp_path / "x.bin"
    np.arange(6.0).tofile(file)
    array = np.memmap(file, float, "r", shape=(3, 2))

    def descriptors() -> int:
        return sum(one.resolve() == file.resolve() for one in Path("/proc/self/fd").iterdir())

    before = descriptors()
    for mapped in (array, array.T):
        rows = unmapped(mapped)
        np.testing.assert_array_equal(rows[np.array([1])], mapped[1:2])
        del rows
    assert descriptors() == before
