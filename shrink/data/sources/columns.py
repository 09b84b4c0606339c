"""Columns of arrays, small and large."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError, listed
from shrink.data.arrays import (
    ArrayExamples,
    RowNumbers,
    Rows,
    are_labels,
    check_finite,
    check_inputs,
    check_not_constant,
    check_same_inputs,
    check_same_targets,
    fed_dtype,
    fed_target_dtype,
    row_bytes,
    row_numbers,
    targets_of,
)
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, ExtremeLabel
from shrink.data.early import layout, slice_columns, wanted_targets
from shrink.data.examples import SPLIT_NAMES, single
from shrink.data.folders import class_order
from shrink.data.slices import column_values
from shrink.data.splits import derived_splits

_MOST_NAMES = 10_000


@dataclass(frozen=True)
class _Split:
    """Inputs and targets of one split, checked, by name; the suffix is that of the names."""

    x: Mapping[str, Rows]
    y: Mapping[str, Rows]
    suffix: str

    @property
    def count(self) -> int:
        """The number of examples."""
        return len(next(iter(self.x.values())))

    @property
    def labels(self) -> np.ndarray | None:
        """Class numbers (n,) of a single target that holds them, else None."""
        only = single(tuple(self.y.values()))
        return only if are_labels(only) else None


def open_columns(
    path: Path,
    names: Collection[str],
    read: Callable[[list[str]], Mapping[str, Rows]],
    config: DataConfig,
    seed: int,
) -> Dataset:
    """Open named arrays; splits that are not given are split from the training one.

    Integer targets of shape (n,) or (n, 1) are labels, int64. Any other target is real, float32;
    (n,) is fed as (n, 1), the shape of a model's single output. Inputs are fed as stored, except
    that float64 becomes float32 and bool becomes uint8. Several inputs, or targets, are fed as a
    tuple in the recipe's order.

    Args:
        path: the file, for messages.
        names: of all arrays there are.
        read: returns arrays by name; what does not fit into memory as rows on the disk.
        config: the `data` section.
        seed: decides splits that are not given.

    Raises:
        DataError: missing arrays, shapes that do not fit together, values that are not finite,
            negative labels, labels that training never sees, a single label.
    """
    inputs, targets = config.inputs or ("x",), config.targets or ("y",)
    suffixes = layout(path, names, inputs)
    wanted = wanted_targets(path, names, suffixes, inputs, targets, config.target == "label")
    columns = slice_columns(path, names, suffixes, config.slices or ())
    read_too = (*inputs, *wanted, *dict.fromkeys(columns.values()))
    arrays = read([f"{name}{s}" for s in suffixes.values() for name in read_too])
    notes: list[str] = []
    texts = [f"{name}{s}" for s in suffixes.values() for name in wanted if len(wanted) == 1]
    words, labels = _numbered(path, {name: arrays[name] for name in texts}, config, notes)
    arrays = {**arrays, **labels}
    splits = {
        split: _split(path, suffix, arrays, inputs, wanted, notes)
        for split, suffix in suffixes.items()
    }
    _check_splits(path, splits, needs_two=config.target == "label", named=bool(words))
    rows = _rows(path, splits, config, seed)
    examples = {name: _examples(*of_split) for name, of_split in rows.items()}
    classes = len(words) or _class_count(splits)
    counted = tuple(map(str, range(classes))) if classes and classes <= _MOST_NAMES else ()
    extremes = tuple(one for name, split in splits.items() for one in _extremes(name, split))
    return Dataset(
        train=examples["train"],
        validation=examples["validation"],
        test=examples["test"],
        class_names=words or (tuple(config.classes or ()) if extremes else counted),
        num_classes=classes,
        notes=tuple(notes),
        input_names=inputs,
        target_names=wanted,
        given=frozenset(splits) - {"train"},
        extremes=extremes,
        slice_values={
            name: {
                by: column_values(path, one, arrays[one][:], split.count)[chosen]
                for by, column in columns.items()
                for one in (f"{column}{split.suffix}",)
            }
            for name, (split, chosen) in rows.items()
        },
    )


def _numbered(
    path: Path, targets: Mapping[str, Rows], config: DataConfig, notes: list[str]
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Return the names of the classes, and texts as labels (n,), where all targets are texts.

    Classes are numbered in alphabetical order, or that of `data.classes`; texts that are whole
    numbers are those labels.
    """
    if not targets or any(y.dtype.kind not in "US" or not y.shape for y in targets.values()):
        return (), {}
    try:
        texts = {n: column_values(path, n, y[:], y.shape[0]) for n, y in targets.items()}
    except UnicodeDecodeError as error:
        message = f"{next(iter(targets))} holds bytes that are no UTF-8 text: {error}"
        raise DataError(message, subject=path, hint="store text: y.astype(str)") from error
    present = np.unique(np.concatenate([*texts.values()])).tolist()
    if all(text.isdecimal() for text in present):
        return (), {name: values.astype(np.int64) for name, values in texts.items()}
    names = class_order(present, config.classes, path)
    number = {name: label for label, name in enumerate(names)}
    notes.append(f"{next(iter(texts))} holds class names; labels number them: {listed(names, 10)}")
    return names, {n: np.array([number[v] for v in y.tolist()]) for n, y in texts.items()}


def _extremes(name: str, split: _Split) -> Iterator[ExtremeLabel]:
    """Yield the two smallest and two largest numbers of maps of whole numbers in memory."""
    for array_name, y in split.y.items():
        if not isinstance(y, np.ndarray) or fed_target_dtype(y).kind == "f" or are_labels(y):
            continue
        flat = y.reshape(-1)
        ends = {flat.min(), flat.max()}
        between = flat[~np.isin(flat, list(ends))]
        ends |= {between.min(), between.max()} if between.size else set()
        for value in sorted(ends):
            row = int((flat == value).argmax()) // (flat.size // len(y))
            yield ExtremeLabel(name, int(value), f"{array_name}[{row}]")


def _split(
    path: Path,
    suffix: str,
    arrays: Mapping[str, Rows],
    inputs: tuple[str, ...],
    targets: tuple[str, ...],
    notes: list[str],
) -> _Split:
    x: dict[str, Rows] = {}
    for name in (f"{name}{suffix}" for name in inputs):
        check_inputs(path, name, arrays[name])
        x[name] = opened(path, name, arrays[name])
    first, rows = next(iter(x.items()))
    for name, array in x.items():
        if len(array) != len(rows):
            raise DataError(
                f"{first} has {len(rows)} examples and {name} has {len(array)}",
                subject=path,
                hint="each array needs one row for each example",
            )
    y: dict[str, Rows] = {}
    for name in (f"{name}{suffix}" for name in targets):
        y[name] = opened(path, name, targets_of(path, name, arrays[name], first, len(rows), notes))
    return _Split(x, y or {"": np.zeros((len(rows), 0), np.float32)}, suffix)


def _check_splits(path: Path, splits: Mapping[str, _Split], needs_two: bool, named: bool) -> None:
    train = splits["train"]
    if needs_two:
        for name, array in train.y.items():
            check_not_constant(path, name, array)
    for split in (split for name, split in splits.items() if name != "train"):
        for (name, x), (other, reference) in zip(split.x.items(), train.x.items(), strict=True):
            check_same_inputs(path, name, x, other, reference)
        for (name, y), (other, reference) in zip(split.y.items(), train.y.items(), strict=True):
            check_same_targets(path, name, y, other, reference, named)


def _rows(
    path: Path, splits: Mapping[str, _Split], config: DataConfig, seed: int
) -> dict[str, tuple[_Split, np.ndarray]]:
    """Return for each split the arrays that its examples are in, and their rows, int64 (n,)."""
    train = splits["train"]
    derived = derived_splits(train.labels, train.count, seed, config, splits, path)
    rows = {}
    for name in SPLIT_NAMES:
        is_given = name in splits and name != "train"
        split = splits[name] if is_given else train
        rows[name] = split, np.arange(split.count) if is_given else derived[name]
    return rows


def _examples(split: _Split, rows: np.ndarray) -> ArrayExamples:
    x, y = tuple(split.x.values()), tuple(split.y.values())
    x_dtypes = tuple(fed_dtype(array) for array in x)
    y_dtypes = tuple(map(fed_target_dtype, y))
    return ArrayExamples(single(x), single(y), rows, single(x_dtypes), single(y_dtypes))


def _class_count(splits: Mapping[str, _Split]) -> int | None:
    highest = [int(split.labels.max()) for split in splits.values() if split.labels is not None]
    return max(highest) + 1 if highest else None


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

    def __getitem__(self, rows: RowNumbers) -> np.ndarray:
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

    def __getitem__(self, rows: RowNumbers) -> np.ndarray:
        """Return rows by number, as an array of its own.

        Raises:
            DataError: the file cannot be read, or has become shorter.
        """
        numbers = row_numbers(rows, len(self))
        read = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        size = row_bytes(self)
        content = read.reshape(-1).view(np.uint8).data
        try:
            for index, number in enumerate(numbers.tolist()):
                row = content[index * size : (index + 1) * size]
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
