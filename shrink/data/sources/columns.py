"""Columns of arrays, small and large."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError, listed
from shrink.data.arrays import (
    LazyRows,
    Rows,
    Several,
    are_labels,
    check_finite,
    check_inputs,
    check_not_constant,
    check_same_inputs,
    check_same_targets,
    fed_dtype,
    fed_target_dtype,
    joined,
    number_names,
    targets_of,
    unmapped,
)
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, ExtremeLabel
from shrink.data.early import stored_arrays
from shrink.data.examples import single
from shrink.data.folders import ALL, class_order
from shrink.data.slices import column_values
from shrink.data.source_table import SourceTable
from shrink.data.splits import tested_split


@dataclass(frozen=True)
class _Split:
    """Inputs and targets of one split, checked, by name."""

    x: Mapping[str, Rows]
    y: Mapping[str, Rows]

    @property
    def count(self) -> int:
        """The number of examples."""
        return len(next(iter(self.x.values())))


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
            negative labels, a single label.
    """
    stored = stored_arrays(path, names, config)
    inputs, wanted, suffixes = stored.inputs, stored.targets, stored.suffixes
    columns = dict.fromkeys(stored.columns.values())
    arrays = read(
        [f"{name}{s}" for s in suffixes.values() for name in (*inputs, *wanted, *columns)]
    )
    notes: list[str] = []
    texts = [f"{name}{s}" for s in suffixes.values() for name in wanted if len(wanted) == 1]
    words, labels = _numbered(path, {name: arrays[name] for name in texts}, config, notes)
    arrays = {**arrays, **labels}
    splits = {
        split: _split(path, suffix, arrays, inputs, wanted, notes)
        for split, suffix in suffixes.items()
    }
    if config.test_split == 1:  # what is not tested may be of another kind
        tested = splits[tested_split(splits)]
        for name, split in [*splits.items()]:
            try:
                _check_splits(path, {"train": tested, "test": split}, needs_two=False)
            except DataError as error:
                del splits[name]
                notes.append(f"the split {name} is not used: {error.message}")
    needs_two = config.target == "label" and not config.takes_one_class(len(words) == 1)
    _check_splits(path, splits, needs_two)
    starts = np.cumsum([0, *(split.count for split in splits.values())])
    x = _joined([split.x for split in splits.values()], fed_dtype)
    y = _joined([split.y for split in splits.values()], fed_target_dtype)
    classes = len(words) or (int(y.max()) + 1 if are_labels(y) else None)
    called = {name: "train" if name == ALL else name for name in splits}
    extremes = tuple(one for name in splits for one in _extremes(called[name], splits[name]))
    counted = number_names(classes or 0)
    dataset = SourceTable(
        path,
        {split: np.arange(*starts[at : at + 2]) for at, split in enumerate(splits)},
        y,
        x,
        words or (tuple(config.classes or ()) if extremes else counted),
        tuple(notes),
        columns={
            name: np.concatenate(
                [
                    column_values(path, stored_name, arrays[stored_name][:], splits[split].count)
                    for split in splits
                    for stored_name in (f"{name}{suffixes[split]}",)
                ]
            )
            for name in columns
        },
    ).open(config, seed)
    return replace(
        dataset,
        num_classes=classes,
        input_names=inputs,
        target_names=wanted,
        extremes=extremes,
    )


def open_spooled(
    path: Path, spools: Mapping[str, Mapping[str, np.ndarray]], config: DataConfig, seed: int
) -> Dataset:
    """Open arrays by split, or of the split `all`, and by name; see `open_columns`."""
    arrays = {
        f"{name}_{split}" if split != ALL else name: array
        for split, named in spools.items()
        for name, array in named.items()
    }
    return open_columns(path, arrays, lambda _: arrays, config, seed)


def _joined(parts: Sequence[Mapping[str, Rows]], fed: Callable[[Rows], np.dtype]) -> Several[Rows]:
    """Return each of some arrays with the rows of all splits, in the dtype that it is fed in."""
    arrays = [list(part.values()) for part in parts]
    return single(
        tuple(joined(own, np.result_type(*map(fed, own))) for own in zip(*arrays, strict=True))
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
    return _Split(x, y or {"": np.zeros((len(rows), 0), np.float32)})


def _check_splits(path: Path, splits: Mapping[str, _Split], needs_two: bool) -> None:
    first = splits.get("train") or next(iter(splits.values()))
    if needs_two:
        for name, array in first.y.items():
            check_not_constant(path, name, array)
    for split in (split for split in splits.values() if split is not first):
        for (name, x), (other, reference) in zip(split.x.items(), first.x.items(), strict=True):
            check_same_inputs(path, name, x, other, reference)
        for (name, y), (other, reference) in zip(split.y.items(), first.y.items(), strict=True):
            check_same_targets(path, name, y, other, reference)


LARGE_BYTES = 128 * 1000**2
"""Arrays up to this size are checked as a whole when they are opened, and may stay in memory."""


def opened(path: Path, name: str, array: Rows) -> Rows:
    """Return `array` itself where it is small, or what reads it row by row.

    Raises:
        DataError: a small array holds a value that is not finite.
    """
    is_mapped = isinstance(array, np.memmap) or not isinstance(array, np.ndarray)
    size = int(np.prod(array.shape, dtype=np.int64)) * array.dtype.itemsize
    if not is_mapped or size <= LARGE_BYTES:
        checked = array if isinstance(array, np.ndarray) else array[:]
        check_finite(path, name, checked)
        return checked
    stored = unmapped(array) if isinstance(array, np.memmap) else array

    def read(rows: np.ndarray) -> np.ndarray:
        values = stored[rows]
        check_finite(path, name, values, rows)
        return values

    return LazyRows(read, array.shape, array.dtype)
