"""A table in a CSV or Parquet file: a row an example, columns of numbers, one or more targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.folders import class_order
from shrink.data.parquet import read_cells
from shrink.data.slice_config import SliceConfig
from shrink.data.slices import listed_values
from shrink.data.sources.columns import open_columns
from shrink.data.table import SPLIT, Table, feature_columns, split_names

_MOST_INTEGERS = 1_000_000


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the rows of `config.path`.

    The target is the column `y`, `label`, `target` or `class`, or those that `data.targets` names:
    one column of whole numbers from 0, or of words, holds labels; fractions, or several columns,
    are real targets (n, k). All other columns, or those of `data.inputs`, are the one input,
    float32 (n, d), in the file's order. A column `split` tells train, validation and test apart.

    Raises:
        DataError: it cannot be read, a column is missing, or a cell is no number.
    """
    path = Path(config.path or "").expanduser()
    table = read_cells(path)
    features, targets = feature_columns(path, table.cells, config)
    sliced = listed_values(config.slices or (), table.cells, path)
    features = _inputs(features, table, config)
    x = np.stack([numbers(path, name, table) for name in features], axis=1)
    names, y = _targets(path, table, targets, config)
    arrays = _by_split(path, table.cells, {"x": x, "y": y, **_as_arrays(sliced)})
    plain = config.model_copy(
        update={"inputs": None, "targets": None, "slices": _renamed(config.slices or ())}
    )
    opened = open_columns(
        path, arrays, lambda wanted: {name: arrays[name] for name in wanted}, plain, seed
    )
    note = f"columns: {', '.join(features)} in, {', '.join(targets) or 'nothing'} out"
    opened = replace(opened, notes=(note, *opened.notes), columns=features)
    return replace(opened, class_names=names, num_classes=len(names)) if names else opened


def _inputs(features: Sequence[str], table: Table, config: DataConfig) -> tuple[str, ...]:
    """Return the columns of the input: one of words that is named for slices is none of them."""
    if config.inputs:
        return tuple(features)
    named = {one.column for one in config.slices or ()}
    return tuple(
        name for name in features if name not in named or all(map(is_number, table.cells[name]))
    )


def _as_arrays(sliced: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return values of slicings under names that no column of the table has."""
    return {f"slice {by}": values for by, values in sliced.items()}


def _renamed(slices: Sequence[SliceConfig]) -> tuple[SliceConfig, ...]:
    """Return the slicings by column as they name what `_as_arrays` gives."""
    return tuple(
        one.model_copy(update={"name": one.called, "column": f"slice {one.called}"})
        for one in slices
        if one.column is not None
    )


def _targets(
    path: Path, table: Table, columns: Sequence[str], config: DataConfig
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the class names, if any, and labels int64 (n,) or targets float32 (n, k)."""
    if not columns:
        return (), np.zeros((len(table.lines), 0), np.float32)
    first = table.cells[columns[0]]
    if len(columns) == 1 and all(map(_is_whole, first)):
        return (), np.array([int(cell) for cell in first], np.int64)
    are_words = not any(map(_is_finite, first)) and not all(map(is_number, first))
    if len(columns) == 1 and are_words:
        names = class_order(set(first), config.classes, path)
        number = {name: label for label, name in enumerate(names)}
        return names, np.array([number[cell] for cell in first], np.int64)
    return (), np.stack([numbers(path, name, table) for name in columns], axis=1)


def _is_whole(cell: str) -> bool:
    return cell.isdecimal() and int(cell) < _MOST_INTEGERS


def is_number(cell: str) -> bool:
    """Whether a cell holds a number; `nan` and `inf` are some."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_finite(cell: str) -> bool:
    """Whether a cell is a number; `nan` and `inf` among words are words."""
    return is_number(cell) and math.isfinite(float(cell))


def numbers(
    path: Path, column: str, table: Table, dtype: type[np.floating] = np.float32
) -> np.ndarray:
    """Return a column of numbers, (n,).

    Raises:
        DataError: a cell is no finite number of this type.
    """
    cells = table.cells[column]
    with np.errstate(over="ignore"):  # a number beyond float32 shows as infinite
        try:
            values = np.array(cells, np.float64).astype(dtype)
        except ValueError:
            values = np.array([float(c) if is_number(c) else np.nan for c in cells], dtype)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(
            f"{column} in line {table.lines[row]} is {cells[row]!r}, not a finite number",
            subject=path,
            hint="correct the line, or leave the column out with data.inputs",
        )
    return values


def _by_split(
    path: Path, cells: Mapping[str, Sequence[str]], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return arrays as an .npz file names them: `x` and `y`, or `x_train` and so on."""
    if SPLIT not in cells:
        return dict(arrays)
    splits = np.array(split_names(path, cells[SPLIT]))
    return {
        f"{name}_{split}": array[splits == split]
        for split in np.unique(splits)
        for name, array in arrays.items()
    }
