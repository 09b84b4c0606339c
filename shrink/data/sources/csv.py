"""A table in a CSV or Parquet file: a row an example, columns of numbers, one or more targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.data.arrays import are_labels, check_not_constant, check_same_targets, targets_of
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.early import slice_columns
from shrink.data.folders import ALL, class_order
from shrink.data.source_table import SourceTable
from shrink.data.table import (
    INDEX_COLUMNS,
    SPLIT,
    Table,
    feature_columns,
    is_number,
    read_cells,
    split_names,
)


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
    slice_columns(path, table.cells, config)
    if not config.inputs:  # a column of words that is named for slices is no input
        named = {one.column for one in config.slices or ()}
        features = tuple(
            name for name in features if name not in named or all(map(is_number, table.cells[name]))
        )
    x = np.stack([numbers(path, name, table) for name in features], axis=1)
    names, y = table_targets(
        path,
        table,
        targets,
        config.classes,
        lambda cells: not any(map(is_finite, cells)) and not all(map(is_number, cells)),
    )
    notes = [f"columns: {', '.join(features)} in, {', '.join(targets) or 'nothing'} out"]
    if not config.inputs and set(INDEX_COLUMNS) & set(table.cells):
        notes.append("the unnamed column of row numbers is not used as an input")
    splits = listed_splits(path, table)
    first = next(name for name in (ALL, "train", *splits) if name in splits)
    label = f"y_{first}" if SPLIT in table.cells else "y"
    if targets:
        y = np.asarray(targets_of(path, label, y, "x", len(x), notes))
        if config.target == "label" and not config.takes_one_class(len(names) == 1):
            check_not_constant(path, label, y[splits[first]])
        for split in sorted(splits.keys() - {first}):
            check_same_targets(path, f"y_{split}", y[splits[split]], label, y[splits[first]])
    classes = tuple(map(str, range(int(y.max()) + 1))) if are_labels(y) else ()
    dataset = SourceTable(
        path, splits, y, x, names or classes, tuple(notes), columns=table.cells
    ).open(config, seed)
    return replace(dataset, input_names=("x",), target_names=("y",), columns=features)


def listed_splits(path: Path, table: Table) -> dict[str, np.ndarray]:
    """Return the rows of the splits that a column `split` gives, or of `all`, int64 (n,).

    Raises:
        DataError: it says something else.
    """
    if SPLIT not in table.cells:
        return {ALL: np.arange(len(table.lines))}
    splits = np.array(split_names(path, table.cells[SPLIT]))
    return {str(split): np.flatnonzero(splits == split) for split in np.unique(splits)}


def table_targets(
    path: Path,
    table: Table,
    columns: Sequence[str],
    classes: Sequence[str] | None,
    are_words: Callable[[Sequence[str]], bool],
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the class names, if words are labels, and labels int64 (n,) or float32 (n, k).

    Args:
        path: of the table, for messages.
        table: its cells.
        columns: of the targets; a single one of whole numbers from 0 holds labels.
        classes: `data.classes`, the order of words.
        are_words: whether the cells of a single column, not all whole numbers, are class names.

    Raises:
        DataError: a cell is neither, or a word is not in `classes`.
    """
    if not columns:
        return (), np.zeros((len(table.lines), 0), np.float32)
    first = table.cells[columns[0]]
    if len(columns) == 1 and all(map(_is_label, first)):
        return (), np.array([int(cell) for cell in first], np.int64)
    if len(columns) == 1 and are_words(first):
        names = class_order(set(first), classes, path)
        number = {name: label for label, name in enumerate(names)}
        return names, np.fromiter(map(number.__getitem__, first), np.int64, len(first))
    return (), np.stack([numbers(path, name, table) for name in columns], axis=1)


def _is_label(cell: str) -> bool:
    return cell.isdecimal() and len(cell) < 20 and int(cell) < 1_000_000


def is_finite(cell: str) -> bool:
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
