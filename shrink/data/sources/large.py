"""Arrays in files too large to be read when they are opened: checked and let go row by row."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from shrink.base.errors import DataError
from shrink.data.arrays import Rows, row_bytes, row_numbers
from shrink.data.sources.array_checks import check_finite

LARGE_BYTES = 128 * 1000**2
"""Arrays up to this size are checked as a whole when they are opened, and may stay in memory."""


class LargeRows:
    """Rows of an array in a file; values are checked as they are read, and no page is kept.

    Args:
        path: the file, for messages.
        name: the array's name in it.
        array: (rows, ...); pages of a `np.memmap` are given back after every read.
    """

    def __init__(self, path: Path, name: str, array: Rows) -> None:
        self._path = path
        self._name = name
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        """Stored dtype."""
        return self._array.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return rows by number, as an array of its own.

        Raises:
            DataError: a value is not finite.
        """
        read = np.array(self._array[rows])
        release_pages(self._array)
        check_finite(self._path, self._name, read, row_numbers(rows, len(self)))
        return read


class FileRows:
    """Rows of a mapped array, read by position instead.

    Mapped pages would count as the process's memory once they were touched, and touching them
    costs more than reading them.

    Args:
        path: the file, for messages.
        array: a `np.memmap` (rows, ...) in C order.
    """

    def __init__(self, path: Path, array: np.memmap) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._offset = int(array.offset)
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype = array.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return rows by number, as an array of its own.

        Raises:
            DataError: the file cannot be read, or has become shorter.
        """
        numbers = row_numbers(rows, len(self))
        read = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        size = row_bytes(self)
        content = read.reshape(-1).view(np.uint8).data
        try:
            for place, number in enumerate(numbers.tolist()):
                row = content[place * size : (place + 1) * size]
                if os.preadv(self._descriptor, [row], self._offset + number * size) < size:
                    raise DataError(
                        "the file has become shorter", subject=self._path, hint="write it again"
                    )
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", subject=self._path) from error
        return read


def opened(path: Path, name: str, array: Rows) -> Rows:
    """Return `array` itself where it is small, or what reads it row by row.

    Raises:
        DataError: a small array holds a value that is not finite.
    """
    is_mapped = isinstance(array, np.memmap) or not isinstance(array, np.ndarray)
    size = int(np.prod(array.shape, dtype=np.int64)) * array.dtype.itemsize
    if is_mapped and size > LARGE_BYTES:
        if isinstance(array, np.memmap) and array.flags.c_contiguous:
            return LargeRows(path, name, FileRows(path, array))
        return LargeRows(path, name, array)
    checked = array if isinstance(array, np.ndarray) else array[:]
    check_finite(path, name, checked)
    return checked


def release_pages(array: Rows) -> None:
    """Give the pages of a mapped file back to the system, which may keep them for itself."""
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap):
        mapped.madvise(mmap.MADV_DONTNEED)
