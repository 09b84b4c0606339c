"""A table in a CSV file: a row an example, columns of numbers, one or several target columns."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shrink.data.class_order import class_order
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.listing import part_names
from shrink.data.sources.columns import open_columns
from shrink.errors import DataError
from shrink.recipe.suggest import hint_for

_TARGET_NAMES = ("y", "label", "target", "class")
_SPLIT = "split"
_MOST_INTEGERS = 1_000_000
_HINT = "the first line names the columns, every other line has one value for each"
Cells = Mapping[str, tuple[str, ...]]


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
    cells = _read(path)
    targets = _target_columns(path, cells, config)
    features = config.inputs or tuple(c for c in cells if c not in (*targets, _SPLIT))
    _check_columns(path, cells, features)
    x = np.stack([_numbers(path, name, cells[name]) for name in features], axis=1)
    names, y = _targets(path, cells, targets, config)
    arrays = _by_part(path, cells, {"x": x.astype(np.float32), "y": y})
    plain = config.model_copy(update={"inputs": None, "targets": None})
    opened = open_columns(
        path, arrays, lambda wanted: {name: arrays[name] for name in wanted}, plain, seed
    )
    note = f"columns: {', '.join(features)} in, {', '.join(targets) or 'nothing'} out"
    opened = replace(opened, notes=(note, *opened.notes))
    return replace(opened, class_names=names, num_classes=len(names)) if names else opened


def _read(path: Path) -> dict[str, tuple[str, ...]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            header, *rows = [row for row in csv.reader(stream, strict=True) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read as CSV: {error}", subject=path, hint=_HINT) from error
    if not rows or len(set(header)) < len(header):
        problem = "no rows" if not rows else "two columns of one name"
        raise DataError(f"{problem} in this table", subject=path, hint=_HINT)
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise DataError(
                f"row {number} has {len(row)} values for {len(header)} columns",
                subject=path,
                hint=_HINT,
            )
    return dict(zip(header, zip(*rows, strict=True), strict=True))


def _target_columns(path: Path, cells: Cells, config: DataConfig) -> tuple[str, ...]:
    if config.target == "input":
        return ()
    if config.targets is not None:
        _check_columns(path, cells, config.targets)
        return config.targets
    found = [name for name in _TARGET_NAMES if name in cells]
    if len(found) != 1:
        raise DataError(
            f"which column is the target? There are {', '.join(cells)}",
            subject=path,
            hint="name it in data.targets (--data-targets COLUMN), or call it y",
        )
    return (found[0],)


def _check_columns(path: Path, cells: Cells, names: Sequence[str]) -> None:
    if not names:
        raise DataError("no column is left for the input", subject=path, hint=_HINT)
    for name in names:
        if name not in cells:
            raise DataError(
                f"no column {name!r} in this table", subject=path, hint=hint_for(name, list(cells))
            )


def _targets(
    path: Path, cells: Cells, columns: Sequence[str], config: DataConfig
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the class names, if any, and labels int64 (n,) or targets float32 (n, k)."""
    rows = len(next(iter(cells.values())))
    if not columns:
        return (), np.zeros((rows, 0), np.float32)
    first = cells[columns[0]]
    if len(columns) == 1 and all(map(_is_whole, first)):
        return (), np.array([int(cell) for cell in first], np.int64)
    if len(columns) == 1 and not any(map(_is_number, first)):
        names = class_order(set(first), config.classes, path)
        number = {name: label for label, name in enumerate(names)}
        return names, np.array([number[cell] for cell in first], np.int64)
    columns_of_numbers = [_numbers(path, name, cells[name]) for name in columns]
    return (), np.stack(columns_of_numbers, axis=1).astype(np.float32)


def _is_whole(cell: str) -> bool:
    return cell.isdecimal() and int(cell) < _MOST_INTEGERS


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(path: Path, column: str, cells: Sequence[str]) -> np.ndarray:
    """Return a column as float64 (n,).

    Raises:
        DataError: a cell is no finite number.
    """
    try:
        values = np.array(cells, np.float64)
    except ValueError:
        values = np.array([float(c) if _is_number(c) else np.nan for c in cells])
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise DataError(
            f"{column} in row {row + 2} is {cells[row]!r}, not a finite number",
            subject=path,
            hint="correct the row, or leave the column out with data.inputs",
        )
    return values


def _by_part(path: Path, cells: Cells, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays as an .npz file names them: `x` and `y`, or `x_train` and so on."""
    if _SPLIT not in cells:
        return dict(arrays)
    parts = np.array(part_names(path, cells[_SPLIT]))
    return {
        f"{name}_{part}": array[parts == part]
        for part in np.unique(parts)
        for name, array in arrays.items()
    }
