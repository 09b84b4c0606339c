"""Tensors under 256 KiB: the allocator of a CPU leaves them to malloc, and does not count them.

glibc's `mallinfo2` reports the bytes of all blocks in use. It is sampled while steps run, beside
the allocator's own figure: the peak of the sum is found, not the sum of two peaks. A sample takes
10 to 50 µs, and more where the heap is in many pieces, all of which `mallinfo2` goes through.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from shrink.measure.memory import AllocatorPeak

SMALL_BYTES = 1 << 18
"""Smaller tensors go through malloc (`kSmallAllocationsThreshold` of mkl_cpu_allocator.h)."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20
"""Free memory that malloc keeps; as much as it comes to keep by itself."""


class Sampling(NamedTuple):
    """How often malloc is sampled.

    Attributes:
        interval_s: between two samples, at least.
        idle: sampling rests so many times as long as a sample took, at least.
    """

    interval_s: float
    idle: float


BESIDE_TRAINING = Sampling(1e-4, 3.0)
IN_PROBES = Sampling(2e-5, 0.5)
"""A probe's few steps may take longer, and a peak of one micro-batch lasts less than 0.1 ms."""
_TESTED_BLOCKS, _TESTED_BYTES = 64, 100_000
_SLOWEST_S = 0.005
"""Mean processor time of a sample: longer ones miss what a step holds for a short time."""


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


@functools.cache
def _libc() -> ctypes.CDLL | None:
    """Return the C library with its types declared; None where it has no `mallinfo2`."""
    library = ctypes.CDLL(None)
    try:
        library.mallinfo2.restype = _Mallinfo2
        library.malloc.restype = ctypes.c_void_p
        library.malloc.argtypes = [ctypes.c_size_t]
        library.free.argtypes = [ctypes.c_void_p]
        library.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    except AttributeError:
        return None
    return library


def map_large_blocks() -> None:
    """Have malloc map blocks of 256 KiB and more, so that its arenas hold small ones.

    Batches that wait, and whatever else is no small tensor, are then not among them, but where a
    free piece of an arena is large enough. TensorFlow's own large tensors do not go through malloc,
    and stay where they are.
    """
    library = _libc()
    if library is not None:
        library.mallopt(_M_MMAP_THRESHOLD, SMALL_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def small_blocks_bytes() -> int | None:
    """Return the bytes of all blocks that malloc's arenas lend now; None where nobody counts."""
    library = _libc()
    return None if library is None else int(library.mallinfo2().uordblks)


@functools.cache
def why_not_counted() -> str:
    """Return why malloc's blocks cannot be counted here; empty where they can."""
    library = _libc()
    if library is None:
        return f"the C library ({' '.join(platform.libc_ver()) or 'unknown'}) has no mallinfo2"
    before = small_blocks_bytes() or 0
    blocks = [library.malloc(_TESTED_BYTES) for _ in range(_TESTED_BLOCKS)]
    rise = (small_blocks_bytes() or 0) - before
    for block in blocks:
        library.free(block)
    if rise < _TESTED_BLOCKS * _TESTED_BYTES:
        return "the process does not use the C library's malloc, whose blocks are counted"
    return ""


def small_variables_bytes() -> int:
    """Return the bytes of all living variables on a CPU that are smaller than 256 KiB."""
    import tensorflow as tf
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

    # Distributed variables are of other classes; those in them have the memory.
    kinds: list[type] = [BaseResourceVariable]
    for kind in kinds:
        kinds += kind.__subclasses__()
    # Objects refer to their class: a third of the time of looking at every object.
    found = gc.get_referrers(*kinds)
    sizes: dict[int, int] = {}
    for each in [one for one in found if type(one) in kinds]:
        handle = getattr(each, "_handle", None)
        if handle is not None and not tf.is_symbolic_tensor(handle) and "CPU" in each.device:
            sizes[id(handle)] = (each.shape.num_elements() or 0) * each.dtype.size
    return sum(size for size in sizes.values() if size < SMALL_BYTES)


class SmallTensorsPeak:
    """Measures how much higher the peak of a CPU is than that of its allocator.

    Begin and end a window around steps that are alike, and mark each: within a step, the growth of
    malloc's blocks is added to the bytes that the allocator holds at that moment. Variables, which
    are held all along, are added at the end. The allocator's own peak counts too, as it may be too
    short for a sample.

    Args:
        allocator: counts the large tensors.
        note: why nothing is to be counted, if that is known before.
        sampling: how often.

    Attributes:
        note: why there is no figure; empty where there is one.
    """

    def __init__(
        self,
        allocator: AllocatorPeak,
        note: str = "",
        sampling: Sampling = BESIDE_TRAINING,
    ) -> None:
        self.note = note or why_not_counted()
        self._sampling = sampling
        self._allocator = allocator
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._base = self._highest = self._most_counted = 0
        self._resting = True
        self._samples, self._sampling_s = 0, 0.0
        # Peaks of the allocator and of all tensors, in bytes.
        self._windows: list[tuple[int, int]] = []

    def reset(self) -> None:
        """Discard the windows so far."""
        self._windows = []

    @property
    def running(self) -> bool:
        """Whether a window has begun and not ended."""
        return self._thread is not None

    def begin(self) -> None:
        """Begin a window with its first step; without effect where nothing can be counted."""
        if self.note or self.running:
            return
        self._highest = self._most_counted = 0
        self._resting = True
        self._stopping.clear()
        self.mark()
        self._thread = threading.Thread(target=self._sample, name="small-tensors", daemon=True)
        self._thread.start()

    def mark(self) -> None:
        """Begin the next step."""
        if not self.note:
            with self._lock:
                self._end_step()
                self._base = small_blocks_bytes() or 0
                self._resting = False

    def rest(self) -> None:
        """Pause until the next mark; without effect outside of a window."""
        if self.running:
            with self._lock:
                self._end_step()
                self._resting = True

    def end(self) -> None:
        """End the window."""
        if self.running:
            self.rest()
            self.discard()
            each = self._sampling_s / max(self._samples, 1)
            if each > _SLOWEST_S:
                self.note = f"malloc's heap is in many pieces: a sample takes {1000 * each:.0f} ms"
                return
            highest = max(self._highest, self._most_counted) + small_variables_bytes()
            self._windows.append((self._most_counted, highest))

    def discard(self) -> None:
        """Discard the current window."""
        if self._thread is not None:
            self._stopping.set()
            self._thread.join()
            self._thread = None

    @contextmanager
    def window(self) -> Iterator[None]:
        """Begin and end a window."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def peak(self, allocator: int) -> int | None:
        """Return how much higher the peak of all tensors is than the allocator's, in bytes.

        At least as much as in the window in which the allocator held most: it may have held more
        outside of all.

        Args:
            allocator: its peak, in bytes, within windows and without.

        Returns:
            None where there was no window.
        """
        if not self._windows:
            return None
        counted, total = max(self._windows, key=lambda window: window[0])
        highest = max(total for _, total in self._windows)
        return max(total - counted, highest - allocator)

    def _end_step(self) -> None:
        highest = self._allocator.step() or 0
        if not self._resting:
            self._most_counted = max(self._most_counted, highest)

    def _sample(self) -> None:
        while not self._stopping.is_set():
            began, busy = time.perf_counter(), time.thread_time()
            with self._lock:
                if not self._resting:
                    self._look()
                    self._samples += 1
                    self._sampling_s += time.thread_time() - busy
            took = time.perf_counter() - began
            time.sleep(max(self._sampling.interval_s, self._sampling.idle * took))

    def _look(self) -> None:
        # Of the two readings the lower one: the small ones may be of either moment.
        before = self._allocator.held() or 0
        rise = (small_blocks_bytes() or 0) - self._base
        held = min(before, self._allocator.held() or 0)
        self._highest = max(self._highest, held + rise)
