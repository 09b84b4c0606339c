"""The slice of each example of a split."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from shrink.base.errors import DataError
from shrink.base.types import Array
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.early import no_column
from shrink.data.examples import Examples, reading_batch
from shrink.data.slice_config import SliceConfig
from shrink.model.user_modules import blaming, function_of

_MOST_VALUES = 12
"""Different numbers up to which each is a slice of its own."""
_EMPTY = "(empty)"


@dataclass(frozen=True)
class Slicing:
    """One way to divide the examples of a split.

    Attributes:
        by: what it is called.
        names: of the slices, each of which has an example.
        index: the slice of each example, int64 (n,), in the order of the split: example i of it is
            in the slice `names[index[i]]`.
    """

    by: str
    names: tuple[str, ...]
    index: Array

    @property
    def labels(self) -> tuple[str, ...]:
        """The slice of each example by its name."""
        return tuple(self.names[i] for i in self.index)


def slicings_of(dataset: Dataset, split: str, config: DataConfig) -> tuple[Slicing, ...]:
    """Return which slice each example of a split is in, by each entry of `data.slices`.

    Args:
        dataset: as it was opened for `config`.
        split: train, validation or test.
        config: the `data` section.

    Raises:
        DataError: a function of the recipe's raised, or returned something else than a text or a
            number for each example.
    """
    examples: Examples = getattr(dataset, split)
    found = []
    for one in config.slices or ():
        if one.kind == "function":
            values = _of_function(str(one.function), examples)
        else:
            values = dataset.slice_values[split][one.called]
        if len(values) != len(examples):
            raise DataError(
                f"{len(values)} values of the slicing {one.called} for {len(examples)} examples",
                subject="data.slices",
            )
        are_numbers = one.kind in ("column", "function")
        found.append(divided(one.called, values, one.edges, are_numbers=are_numbers))
    return tuple(found)


def divided(
    by: str, values: Array, edges: Sequence[float] | None = None, *, are_numbers: bool = True
) -> Slicing:
    """Return the slices that values stand for, sorted.

    Texts are names of slices. So are numbers, unless there are more than 12 different ones: they
    are then divided at their quartiles, or at `edges` where these are given.

    Args:
        by: what the slicing is called.
        values: (n,) texts or numbers.
        edges: ascending; a slice reaches from one, included, to the next, excluded.
        are_numbers: false where a number is a name, as in a folder `2024`.

    Raises:
        DataError: edges, and values that are no numbers.
    """
    texts = [text.strip() or _EMPTY for text in map(str, values.tolist())]
    numbers = _numbers(texts) if are_numbers else None
    if numbers is None:
        if edges is not None:
            raise DataError(
                f"edges divide numbers, and {by} has {texts[0]!r}", subject="data.slices"
            )
        names, index = np.unique(np.array(texts), return_inverse=True)
        return Slicing(by, tuple(map(str, names)), index.astype(np.int64))
    distinct, index = np.unique(numbers, return_inverse=True)
    if edges is None and len(distinct) <= _MOST_VALUES:
        return Slicing(by, _told_apart(distinct, 12), index.astype(np.int64))
    limits = np.unique(np.quantile(numbers, (0.25, 0.5, 0.75)) if edges is None else edges)
    bins = np.digitize(numbers, limits)
    present, index = np.unique(bins, return_inverse=True)
    ends = _told_apart(limits, 6)
    return Slicing(by, tuple(_range(ends, int(one)) for one in present), index.astype(np.int64))


def _range(ends: Sequence[str], place: int) -> str:
    if place == 0:
        return f"below {ends[0]}"
    if place == len(ends):
        return f"from {ends[-1]}"
    return f"{ends[place - 1]} to {ends[place]}"


def _told_apart(distinct: Array, least_digits: int) -> tuple[str, ...]:
    """Return different numbers as different texts: 17 digits always do (IEEE 754-2019, 5.12.2)."""
    for digits in (least_digits, 12):
        texts = tuple(f"{value:.{digits}g}" for value in distinct)
        if len(set(texts)) == len(texts):
            return texts
    return tuple(f"{value:.17g}" for value in distinct)


def _numbers(texts: Sequence[str]) -> Array | None:
    """Return values as float64 (n,); None where one of them is no finite number."""
    try:
        numbers = np.array([float(text) for text in texts])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def column_values(path: Path, name: str, column: Array, count: int) -> Array:
    """Return a stored array as one value for each example, (n,).

    Raises:
        DataError: it has another shape, another length, or holds neither texts nor numbers.
    """
    values = np.asarray(column)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or len(values) != count or values.dtype.kind not in "USbiuf":
        raise DataError(
            f"{name} must hold one text or number for each of {count} examples; its shape is "
            f"{values.shape}, its type {values.dtype}",
            subject=path,
            hint="store an array of shape (n,); one-hot rows must be numbers, not texts",
        )
    return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values


def slice_values(
    slices: Sequence[SliceConfig],
    path: Path,
    columns: Mapping[str, Sequence[str] | Array],
    files: Callable[[], Iterable[str]],
    root: Path,
) -> dict[str, Array]:
    """Return the values of slicings that are no functions, (rows,) each, by their names.

    Args:
        slices: of the recipe.
        path: of the data, for messages.
        columns: a text or a number for each row, by name.
        files: returns the absolute path of each row's file.
        root: the folder that folders and patterns are looked for from, in files below it.

    Raises:
        DataError: there is no such column.
    """
    found: dict[str, Array] = {}
    for one in slices:
        if one.column is not None:
            if one.column not in columns:
                raise no_column(path, one.column, columns)
            found[one.called] = np.asarray(columns[one.column])
        elif one.function is None:
            below = (file.removeprefix(f"{root}/") for file in files())
            found[one.called] = np.array([_of_path(one, file) for file in below])
    return found


def _of_path(one: SliceConfig, path: str) -> str:
    if one.pattern is not None:
        found = re.search(one.pattern, path)
        if found is None:
            return "(no match)"
        return (found[1] or _EMPTY) if found.re.groups else found[0]
    folders = PurePosixPath(path).parts[:-1]
    level = int(one.folder or 0)
    place = level - 1 if level > 0 else level
    there = -len(folders) <= place < len(folders)
    return folders[place] if there else "(no folder)"


def _of_function(text: str, examples: Examples) -> Array:
    path, _, name = text.rpartition(":")
    function = function_of(Path(path), name)
    step = reading_batch(examples.input_spec, examples.target_spec)
    values: list[object] = []
    for start in range(0, len(examples), step):
        indices = np.arange(start, min(start + step, len(examples)))
        x, y = examples.arrays(indices)
        with blaming("it raised ", text, "return a text or a number for each example", DataError):
            returned = np.asarray(function(x, y))
        if returned.shape != (len(indices),) or returned.dtype.kind not in "USbiuf":
            raise DataError(
                f"it returned shape {returned.shape} of {returned.dtype} for {len(indices)} "
                "examples",
                subject=text,
                hint="return a text or a number for each example",
            )
        values += returned.tolist()
    return np.array(list(map(str, values)))
