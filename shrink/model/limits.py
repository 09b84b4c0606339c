"""Bounds on what loading a model file may take."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

_ROOM_BYTES = 2 << 30
_PER_CORE_BYTES = 80 << 20
"""Address space that a thread reserves: its stack, and an arena of the C library."""
_COPIES = 8
_TIME_S = 300.0
_BYTES_PER_S = 10e6


@contextlib.contextmanager
def bounded_loading(path: Path) -> Iterator[None]:
    """Let what stands in the block take a few times the file's size in memory, and minutes.

    A small file can ask for any amount of either: by the sizes of its layers. Memory beyond the
    bound is refused to TensorFlow, which raises; after the time the process ends by SIGALRM.
    With GPUs memory is not bounded: their driver reserves address space without end.

    Args:
        path: a model's file or folder.
    """
    size = _size_bytes(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    limit = _in_use_bytes() + room_bytes(size)
    if not on_gpu and soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    signal.setitimer(signal.ITIMER_REAL, _TIME_S + size / _BYTES_PER_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def room_bytes(file_bytes: int) -> int:
    """Return the address space that loading a file of this size may take."""
    return _ROOM_BYTES + _PER_CORE_BYTES * (os.cpu_count() or 1) + _COPIES * file_bytes


def _size_bytes(path: Path) -> int:
    """Return the bytes of a file or folder, of an archive those that it unpacks to."""
    if path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _in_use_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()
