"""Small tensors beside closed forms: what malloc is asked for, and what is held."""

from __future__ import annotations

import ctypes
import functools
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from shrink.measure import small_tensors
from shrink.measure.memory import AllocatorPeak
from shrink.measure.small_tensors import (
    BESIDE_TRAINING,
    IN_PROBES,
    Sampling,
    SmallTensorsPeak,
    map_large_blocks,
    small_blocks_bytes,
    small_variables_bytes,
    why_not_counted,
)
from shrink.measure.training_peak import Parts, TrainingPeak, figures
from tests.forks import call

BLOCKS, BYTES = 100, 50_000
pytestmark = pytest.mark.skipif(bool(why_not_counted()), reason=why_not_counted())


def with_a_fresh_heap(test: Callable[..., str | None]) -> Callable[..., None]:
    """Run a test in a process of its own, as a worker is; it returns why it is skipped, if it is.

    Earlier tests leave variables that are collected, and threads that free blocks, in the middle of
    a window, and a heap in many pieces: with 50,000 free ones `mallinfo2` takes 33 ms.
    """
    inside = f"_{test.__name__}"
    globals()[inside] = test

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        if reason := call(__name__, inside, **arguments):
            pytest.skip(reason)

    return run


class Told(AllocatorPeak):
    """An allocator that holds what the test sets, and once held more than a sample meets."""

    def __init__(self, now: int = 0, once: int = 0) -> None:
        self.now, self.once = now, once

    def held(self) -> int:
        return self.now

    def step(self) -> int:
        return max(self.now, self.once)


def lend(seconds: float) -> None:
    """Take blocks from malloc, wait, and give them back."""
    library = small_tensors._libc()
    assert library is not None
    blocks = [library.malloc(BYTES) for _ in range(BLOCKS)]
    ctypes.CDLL(None).usleep(int(1e6 * seconds))
    for block in blocks:
        library.free(block)


@pytest.mark.parametrize("sampling", [BESIDE_TRAINING, IN_PROBES])
@with_a_fresh_heap
def test_peak_is_that_of_blocks_which_were_given_back(sampling: Sequence[float]) -> None:
    looked = SmallTensorsPeak(Told(), sampling=Sampling(*sampling))
    held = small_variables_bytes()
    with looked.window():
        looked.mark()
        lend(0.05)
    assert looked.peak(0) == pytest.approx(BLOCKS * BYTES + held, rel=0.02)


@with_a_fresh_heap
def test_peak_is_of_the_sum_and_not_the_sum_of_peaks() -> None:
    """The allocator holds most while malloc has lent nothing: its own peak is that of the sum."""
    most = 10 * BLOCKS * BYTES
    allocator = Told(most, most)
    looked = SmallTensorsPeak(allocator)
    held = small_variables_bytes()
    with looked.window():
        looked.mark()
        ctypes.CDLL(None).usleep(20_000)
        allocator.now = 0
        lend(0.05)
    peak = looked.peak(most)
    assert peak is not None
    assert peak - held < 0.1 * BLOCKS * BYTES


@with_a_fresh_heap
def test_peak_is_above_what_the_allocator_held_for_too_short_to_be_sampled() -> None:
    """It once held 0.8 of what malloc lends later: the sum is a fifth above it, not twice it."""
    once = 8 * BLOCKS * BYTES // 10
    looked = SmallTensorsPeak(Told(once=once))
    held = small_variables_bytes()
    with looked.window():
        looked.mark()
        lend(0.05)
    assert looked.peak(once) == pytest.approx(BLOCKS * BYTES - once + held, abs=BLOCKS * BYTES / 50)


@with_a_fresh_heap
def test_peak_leaves_out_what_the_allocator_held_between_steps() -> None:
    allocator = Told(once=2 * BLOCKS * BYTES)
    looked = SmallTensorsPeak(allocator)
    held = small_variables_bytes()
    looked.begin()
    looked.rest()
    allocator.once = 9 * BLOCKS * BYTES  # as of a checkpoint
    looked.mark()
    allocator.once = 0
    lend(0.05)
    looked.end()
    # 100 blocks are lent where the allocator once held as much as 200: the sum is no higher.
    assert looked.peak(9 * BLOCKS * BYTES) == held


@with_a_fresh_heap
def test_peak_outside_of_the_windows_has_what_the_fullest_window_had_above() -> None:
    allocator = Told(now=2 * BLOCKS * BYTES)
    looked = SmallTensorsPeak(allocator)
    held = small_variables_bytes()
    with looked.window():
        looked.mark()
        lend(0.05)
    allocator.now = 0
    with looked.window():  # as validation, where less is held
        looked.mark()
        lend(0.05)
        lend(0.05)
    for outside in (0, BLOCKS * BYTES):
        found = looked.peak(2 * BLOCKS * BYTES + outside)
        assert found == pytest.approx(BLOCKS * BYTES + held, rel=0.02)


@with_a_fresh_heap
def test_peak_leaves_out_what_is_lent_between_steps_and_in_a_discarded_window() -> None:
    looked = SmallTensorsPeak(Told())
    held = small_variables_bytes()
    with looked.window():
        looked.rest()
        lend(0.02)
    looked.begin()
    lend(0.02)
    looked.discard()
    peak = looked.peak(0)
    assert peak is not None
    assert peak - held < 0.1 * BLOCKS * BYTES


@with_a_fresh_heap
def test_no_peak_is_given_where_samples_take_too_long_to_meet_it() -> None:
    library = small_tensors._libc()
    assert library is not None
    pieces = [library.malloc(1500 + number % 7 * 500) for number in range(300_000)]
    for piece in pieces[::2]:
        library.free(piece)
    looked = SmallTensorsPeak(Told())
    with looked.window():
        looked.mark()
        lend(0.05)
    assert looked.peak(0) is None
    assert looked.note.startswith("malloc's heap is in many pieces: a sample takes ")


def test_large_blocks_are_not_among_the_small_ones() -> None:
    map_large_blocks()
    before = small_blocks_bytes()
    batch = np.empty(200_000_000, np.uint8)  # larger than any free piece of an arena
    after = small_blocks_bytes()
    assert before is not None
    assert after is not None
    assert after - before < 0.1 * batch.nbytes


@with_a_fresh_heap
def test_small_variables_are_counted_once_and_large_ones_never() -> None:
    gc.collect()
    before = small_variables_bytes()
    kept = [tf.Variable(tf.zeros([1000]), name="a"), tf.Variable(tf.zeros([70_000]), name="b")]
    again = kept[0]
    assert small_variables_bytes() - before == 4000
    del kept, again
    gc.collect()
    assert small_variables_bytes() == before


def test_nothing_is_counted_where_the_c_library_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_tensors, "_libc", lambda: None)
    monkeypatch.setattr(small_tensors, "why_not_counted", why_not_counted.__wrapped__)
    looked = SmallTensorsPeak(Told())
    with looked.window():
        looked.mark()
    assert looked.peak(0) is None
    assert "has no mallinfo2" in looked.note


def test_figures_without_small_tensors_are_a_lower_bound() -> None:
    found = figures(Parts(5_000_000, None), "", "no mallinfo2")
    assert found["training_peak_bytes"].value == 5_000_000
    assert found["training_peak_bytes"].reason.startswith("a lower bound, without tensors under")
    assert found["training_peak_small_bytes"].value is None
    assert found["training_peak_small_bytes"].reason == "unknown: no mallinfo2"
    whole = figures(Parts(5_000_000, 70_000), "", "")
    assert whole["training_peak_bytes"].value == 5_070_000
    assert not any(one.reason for one in whole.values())


@with_a_fresh_heap
def test_training_peak_counts_tensors_on_both_sides_of_the_threshold() -> str | None:
    """The large ones are held while the small ones are there: the peak of all is that of both."""
    peak = TrainingPeak(["CPU:0"])
    if peak.note:
        return peak.note
    assert not peak.counts_all

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        large = [tf.random.uniform([600, 600]) for _ in range(2)]
        large.append(tf.linalg.matmul(*large))
        with tf.control_dependencies(large):
            small = [tf.random.uniform([50_000]) for _ in range(40)]
        with tf.control_dependencies(small):
            work = tf.linalg.matmul(large[2], large[2])
        with tf.control_dependencies([work]):
            return tf.add_n([tf.reduce_sum(one) for one in [*small, *large]])

    map_large_blocks()  # as every worker does: else malloc may map blocks of 200 KB
    step()
    peak.reset()
    held, small = small_variables_bytes(), 0
    for _ in range(6):  # on a busy machine few samples meet a step
        began = time.perf_counter()
        with peak.small.window():
            while time.perf_counter() - began < 0.5:  # as long as training is looked at
                peak.small.mark()
                step()
        small = peak.parts().small or 0
        if small - held > 0.5 * 40 * 200_000:
            break
    assert 0.5 * 40 * 200_000 < small - held < 1.1 * 40 * 200_000
    return None
