"""Columns of arrays, small and large."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError, listed
from shrink.data.arrays import (
    ArrayExamples,
    LazyRows,
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
    targets_of,
)
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, ExtremeLabel, given_splits
from shrink.data.early import stored_arrays
from shrink.data.examples import single
from shrink.data.folders import class_order
from shrink.data.slices import column_values
from shrink.data.splits import chosen_rows

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
    stored = stored_arrays(path, names, config)
    inputs, wanted, suffixes, columns = (
        stored.inputs,
        stored.targets,
        stored.suffixes,
        stored.columns,
    )
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
    counts = {name: np.arange(split.count) for name, split in splits.items()}
    rows = chosen_rows(counts, splits["train"].labels, seed, config, path)
    examples = {name: _examples(splits[given], own) for name, (given, own) in rows.items()}
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
        given=given_splits(rows),
        extremes=extremes,
        slice_values={
            name: {
                by: column_values(path, one, arrays[one][:], splits[given].count)[chosen]
                for by, column in columns.items()
                for one in (f"{column}{suffixes[given]}",)
            }
            for name, (given, chosen) in rows.items()
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


def _checked_rows(path: Path, name: str, array: Rows) -> LazyRows:
    """Return the rows of an array in a file; values are checked as they are read.

    Mapped pages count as the process's memory once they are touched, and touching them costs more
    than reading them: rows of a `np.memmap` in C order are read by position.
    """
    if isinstance(array, np.memmap) and array.flags.c_contiguous:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        stored: Callable[[np.ndarray], np.ndarray] = functools.partial(
            _read_rows, path, descriptor, array
        )
    else:
        stored = array.__getitem__

    def read(rows: np.ndarray) -> np.ndarray:
        values = np.array(stored(rows))
        mapped = getattr(array, "_mmap", None)
        if isinstance(mapped, mmap.mmap):
            mapped.madvise(mmap.MADV_DONTNEED)  # gives the pages back
        check_finite(path, name, values, rows)
        return values

    return LazyRows(read, array.shape, array.dtype)


def _read_rows(path: Path, descriptor: int, array: np.memmap, rows: np.ndarray) -> np.ndarray:
    """Return rows of a mapped array from its file."""
    read = np.empty((len(rows), *array.shape[1:]), array.dtype)
    size = row_bytes(array)
    content = read.reshape(-1).view(np.uint8).data
    try:
        for index, number in enumerate(rows.tolist()):
            row = content[index * size : (index + 1) * size]
            if os.preadv(descriptor, [row], int(array.offset) + number * size) < size:
                raise DataError("the file has become shorter", subject=path, hint="write it again")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", subject=path) from error
    return read


def opened(path: Path, name: str, array: Rows) -> Rows:
    """Return `array` itself where it is small, or what reads it row by row.

    Raises:
        DataError: a small array holds a value that is not finite.
    """
    is_mapped = isinstance(array, np.memmap) or not isinstance(array, np.ndarray)
    size = int(np.prod(array.shape, dtype=np.int64)) * array.dtype.itemsize
    if is_mapped and size > LARGE_BYTES:
        return _checked_rows(path, name, array)
    checked = array if isinstance(array, np.ndarray) else array[:]
    check_finite(path, name, checked)
    return checked
