"""Examples in arrays, checked."""

from __future__ import annotations

import functools
import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from shrink.base.errors import DataError
from shrink.base.types import Spec, Specs, leaves
from shrink.data.examples import Batch, Examples

RowNumbers: TypeAlias = "np.ndarray | slice"
"""Which rows of an array: int (n,), or a slice."""
T = TypeVar("T")
Several: TypeAlias = T | tuple[T, ...]
"""One of a kind, or a tuple of them."""


class Rows(Protocol):
    """An array (rows, ...) that is read by rows: a `np.ndarray`, or a file's stand-in for one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""

    @property
    def dtype(self) -> np.dtype:
        """Stored dtype."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: RowNumbers) -> np.ndarray: ...


class LazyRows:
    """Rows of an array that are read, or computed, when they are asked for.

    Args:
        read: from numbers of rows, int64 (n,), to an array (n, ...) of its own.
        shape: of the whole array.
        dtype: of its values.
        is_decoded: whether reading takes much longer than copying, as that of pictures does.
    """

    def __init__(
        self,
        read: Callable[[np.ndarray], np.ndarray],
        shape: Sequence[int],
        dtype: DTypeLike,
        is_decoded: bool = False,
    ) -> None:
        self._read, self.is_decoded = read, is_decoded
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: RowNumbers) -> np.ndarray:
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        return self._read(np.asarray(rows))


def unmapped(array: np.memmap) -> LazyRows:
    """Return the rows of a mapped array, read so that no page of the file stays with the process.

    Pages that are touched count as its memory, and touching them costs more than reading them.

    Raises:
        DataError: when rows are read: the file cannot be read, or has become shorter.
    """
    path, size = str(array.filename), row_bytes(array)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def by_position(rows: np.ndarray) -> np.ndarray:
        values = np.empty((len(rows), *array.shape[1:]), array.dtype)
        content = values.reshape(-1).view(np.uint8).data
        try:
            for index, number in enumerate(rows.tolist()):
                row = content[index * size : (index + 1) * size]
                if os.preadv(descriptor, [row], int(array.offset) + number * size) < size:
                    raise DataError(
                        "the file has become shorter", subject=path, hint="write it again"
                    )
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", subject=path) from error
        return values

    def by_pages(rows: np.ndarray) -> np.ndarray:
        values = np.array(array[rows])
        array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        return values

    weakref.finalize(by_position, os.close, descriptor)
    read = by_position if array.flags.c_contiguous else by_pages
    return LazyRows(read, array.shape, array.dtype)


class ArrayExamples(Examples):
    """Some rows of input arrays and target arrays; batches are gathered, never copied whole.

    Args:
        x: (rows, ...) inputs, or a tuple of them; what is on the disk stays there.
        y: (rows, ...) targets, or a tuple of them; a single int64 (rows,) holds labels.
        indices: int64 (n,), the rows that are these examples.
        contents: what examples are identified by, and returns the bytes of rows that do it; None
            for the values of their inputs.
    """

    def __init__(
        self,
        x: Several[Rows],
        y: Several[Rows],
        indices: np.ndarray,
        contents: tuple[str, Callable[[np.ndarray], Sequence[bytes]]] | None = None,
    ) -> None:
        self._x, self._y, self._indices, self._contents = x, y, indices, contents
        self.labels: np.ndarray | None = y[indices] if are_labels(y) else None

    @property
    def is_decoded(self) -> bool:
        """Whether inputs or targets take long to read."""
        return any(getattr(rows, "is_decoded", False) for rows in leaves((self._x, self._y)))

    @functools.cached_property
    def input_spec(self) -> Specs:
        """One row of `x`."""
        return _each(_row_spec, self._x)

    @functools.cached_property
    def target_spec(self) -> Specs:
        """One row of `y`."""
        return _each(_row_spec, self._y)

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def identified_by(self) -> str:
        """What `contents` are."""
        return super().identified_by if self._contents is None else self._contents[0]

    def contents(self, indices: np.ndarray) -> Sequence[bytes]:
        """Return what identifies each of some examples."""
        if self._contents is None:
            return super().contents(indices)
        return self._contents[1](self._indices[indices])

    def arrays(self, indices: np.ndarray) -> Batch:
        """Return a batch as arrays of its own.

        Raises:
            DataError: a value in a file is not finite, or cannot be read.
        """
        rows = self._indices[indices]

        def gather(array: Rows) -> np.ndarray:
            return np.asarray(array[rows], array.dtype.newbyteorder("="))

        return _each(gather, self._x), _each(gather, self._y)


def joined(parts: Sequence[Rows], dtype: np.dtype) -> Rows:
    """Return the rows of arrays one behind the other, as they are fed."""
    if are_labels(parts[0]):
        return np.concatenate([part[:] for part in parts])
    starts = np.cumsum([0, *map(len, parts)])

    def read(rows: np.ndarray) -> np.ndarray:
        owner = np.searchsorted(starts, rows, "right") - 1
        values = np.empty((len(rows), *parts[0].shape[1:]), dtype)
        for part in np.unique(owner):
            own = owner == part
            values[own] = parts[part][rows[own] - starts[part]]
        return values

    return LazyRows(read, (int(starts[-1]), *parts[0].shape[1:]), dtype)


def are_labels(y: object) -> TypeGuard[np.ndarray]:
    """Whether targets are integer labels, int64 (n,)."""
    return isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype == np.int64


def number_names(classes: int) -> tuple[str, ...]:
    """Return the names of classes that have only numbers; none for more than 10,000 classes."""
    return tuple(map(str, range(classes))) if classes <= _MOST_NAMES else ()


def row_bytes(array: Rows) -> int:
    """Return the size of one row."""
    return int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize


def _each(function: Callable[..., T], *values: Several[Any]) -> Several[T]:
    """Return what a function gives for one array, or for each of a tuple of them."""
    if isinstance(values[0], tuple):
        return tuple(map(function, *values))
    return function(*values)


def _row_spec(array: Rows) -> Spec:
    return Spec(tuple(array.shape[1:]), array.dtype.newbyteorder("="))


_CHUNK_BYTES = 1 << 24
_MOST_NAMES = 10_000
LABEL_LIMIT = 2**31
"""Labels are smaller."""
REAL_HINT = "number classes from 0, or store real targets as floating point numbers"


def check_inputs(path: Path, name: str, x: Rows) -> None:
    """Raise `DataError` unless `x` holds examples that are numbers."""
    _check_numbers(path, name, x)
    _check_not_empty(path, name, x)


def fed_dtype(x: Rows) -> np.dtype:
    """Return the dtype that inputs are fed in: as stored, float64 as float32, bool as uint8."""
    if x.dtype.kind == "b":
        return np.dtype(np.uint8)
    native = x.dtype.newbyteorder("=")
    return np.dtype(np.float32) if native == np.float64 else native


def fed_target_dtype(y: Rows) -> np.dtype:
    """Return the dtype that targets are fed in: labels int64, maps of whole numbers, else float32.

    Maps have three axes or more, examples included, such as masks; uint8 stays, others are signed.
    """
    if are_labels(y):
        return np.dtype(np.int64)
    if len(y.shape) < 3 or y.dtype.kind not in "iu":
        return np.dtype(np.float32)
    if y.dtype == np.uint8:
        return y.dtype
    return np.dtype(np.int32 if np.can_cast(y.dtype, np.int32) else np.int64)


def targets_of(path: Path, name: str, y: Rows, inputs: str, count: int, notes: list[str]) -> Rows:
    """Return targets in the shape that they are fed: int64 (n,) labels, or real (n, ...) ones.

    Args:
        path: the file, for messages.
        name: the name of `y` in it.
        y: the stored targets.
        inputs: the name of the inputs that belong to them.
        count: how many inputs there are.
        notes: receives what a reader of the report should know.

    Raises:
        DataError: another number of targets, values that are not finite, negative labels.
    """
    _check_numbers(path, name, y)
    length = y.shape[0] if y.shape else 1
    if not y.shape or length != count:
        raise DataError(
            f"{inputs} has {count} examples and {name} has {length}",
            subject=path,
            hint="each array needs one row for each example",
        )
    _check_not_empty(path, name, y)
    if int(np.prod(y.shape[1:])) != 1 or len(y.shape) > 2:
        return y
    single = np.asarray(y[:])
    if y.dtype.kind in "biu":
        flat = np.asarray(single).reshape(len(single))
        lowest, highest = int(flat.min()), int(flat.max())
        if lowest < 0 or highest >= LABEL_LIMIT:
            wrong = lowest if lowest < 0 else highest
            index = int(np.argmax(flat == wrong))
            kind = "negative" if wrong < 0 else "out of range"
            raise DataError(
                f"{name}[{index}] is {wrong}: a {kind} label", subject=path, hint=REAL_HINT
            )
        return flat.astype(np.int64)
    check_finite(path, name, single)
    if np.array_equal(single, np.floor(single)):
        notes.append(
            f"{name} holds whole numbers stored as {y.dtype}: they are labels if the loss takes "
            "labels, else real targets"
        )
    return single.reshape(count, 1)


def check_not_constant(path: Path, name: str, y: Rows) -> None:
    """Raise `DataError` where all labels are the same."""
    if are_labels(y) and len(y) and (only := int(y[0])) == int(y[:].min()) == int(y[:].max()):
        raise DataError(
            f"all labels in {name} are {only}; a classifier needs at least two classes",
            subject=path,
            hint="add examples of other classes, or set data.target: input for an autoencoder",
        )


def _check_same_shape(
    path: Path, name: str, shape: Sequence[int], other: str, reference: Sequence[int]
) -> None:
    """Raise `DataError` where examples of two splits have different shapes."""
    if tuple(shape[1:]) != tuple(reference[1:]):
        raise DataError(
            f"one example of {name} has the shape {tuple(shape[1:])}, one of {other} has "
            f"{tuple(reference[1:])}",
            subject=path,
            hint="all splits need examples of one shape",
        )


def check_same_inputs(path: Path, name: str, x: Rows, other: str, train: Rows) -> None:
    """Raise `DataError` where the inputs of a split differ from training's in shape or dtype."""
    if fed_dtype(x) != fed_dtype(train):
        raise DataError(
            f"{name} is {x.dtype} and {other} is {train.dtype}",
            subject=path,
            hint=f"store both as {fed_dtype(train)}",
        )
    _check_same_shape(path, name, x.shape, other, train.shape)


def check_same_targets(path: Path, name: str, y: Rows, other: str, train: Rows) -> None:
    """Raise `DataError` where the targets of a split are of another kind than training's."""
    if are_labels(y) != are_labels(train):
        kinds = [f"{'labels' if are_labels(a) else 'real targets'} ({a.dtype})" for a in (y, train)]
        raise DataError(
            f"{name} holds {kinds[0]} and {other} holds {kinds[1]}", subject=path, hint=REAL_HINT
        )
    _check_same_shape(path, name, y.shape, other, train.shape)


def _check_not_empty(path: Path, name: str, array: Rows) -> None:
    if not array.shape or not np.prod(array.shape, dtype=np.int64):
        raise DataError(
            f"{name} is empty: its shape is {array.shape}",
            subject=path,
            hint="store one row for each example",
        )


def check_finite(
    path: Path, name: str, array: np.ndarray, numbers: np.ndarray | None = None
) -> None:
    """Raise `DataError` naming the first value that is not finite as it is fed.

    Args:
        path: the file, for messages.
        name: the array's name in it.
        array: (rows, ...) values.
        numbers: int (rows,), which rows of the file these are; by default all of them.
    """
    if array.dtype.kind != "f":
        return
    rows = max(1, _CHUNK_BYTES // max(1, row_bytes(array)))
    for start in range(0, len(array), rows):
        with np.errstate(over="ignore"):  # a float64 beyond float32 shows as infinite
            finite = np.isfinite(np.asarray(array[start : start + rows], fed_dtype(array)))
        if finite.all():
            continue
        row, *rest = (int(i) for i in np.argwhere(~finite)[0])
        value = array[(start + row, *rest)]
        shown = start + row if numbers is None else int(numbers[start + row])
        raise DataError(
            f"{name}[{', '.join(map(str, (shown, *rest)))}] is {value}: not a finite "
            f"{fed_dtype(array)}",
            subject=path,
            hint="remove or replace such values",
        )


def _check_numbers(path: Path, name: str, array: Rows) -> None:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise DataError(
            f"{name} is of dtype {array.dtype}; integers, floats and bool are supported",
            subject=path,
            hint="store numbers in an array of one shape",
        )
