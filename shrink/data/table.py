"""A table in a CSV file, by its cells: columns, targets, and the line of each row; light."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrink.base.errors import DataError
from shrink.base.suggest import hint_for
from shrink.data.config import DataConfig
from shrink.data.listing import numbered_rows

SPLIT = "split"
"""The column that tells train, validation and test apart."""
_TARGET_NAMES = ("y", "label", "target", "class")
_HINT = "the first line names the columns, every other line has one value for each"


@dataclass(frozen=True)
class Table:
    """The cells of a CSV file.

    Attributes:
        cells: of each column, by its name in the first line.
        lines: where each row begins in the file, from 1.
    """

    cells: Mapping[str, tuple[str, ...]]
    lines: tuple[int, ...]


def read_table(path: Path) -> Table:
    """Read a table.

    Raises:
        DataError: it is no CSV file, has no rows, two columns of one name, or a row of another
            length.
    """
    (_, header), *rows = _read(path, None)
    if not rows or len(set(header)) < len(header):
        problem = "no rows" if not rows else "two columns of one name"
        raise DataError(f"{problem} in this table", subject=path, hint=_HINT)
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(
                f"line {line} has {len(row)} values for {len(header)} columns",
                subject=path,
                hint=_HINT,
            )
    columns = zip(*(row for _, row in rows), strict=True)
    return Table(dict(zip(header, columns, strict=True)), tuple(line for line, _ in rows))


def read_header(path: Path) -> list[str]:
    """Return the names of a table's columns.

    Raises:
        DataError: it is no CSV file.
    """
    return _read(path, 1)[0][1]


def _read(path: Path, most: int | None) -> list[tuple[int, list[str]]]:
    """Return at most so many rows with their lines, the first of them the header."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return list(itertools.islice(numbered_rows(stream), most)) or [(1, [])]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read as CSV: {error}", subject=path, hint=_HINT) from error


def feature_columns(
    path: Path, columns: Collection[str], config: DataConfig
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of the input and of the target.

    Args:
        path: of the table, for messages.
        columns: all that it has, in the file's order.
        config: the `data` section.

    Raises:
        DataError: a column is missing, or nobody can know which is the target.
    """
    targets = _target_columns(path, columns, config)
    features = config.inputs or tuple(c for c in columns if c not in (*targets, SPLIT))
    _check_columns(path, columns, features)
    return features, targets


def _target_columns(path: Path, columns: Collection[str], config: DataConfig) -> tuple[str, ...]:
    if config.target == "input":
        return ()
    if config.targets is not None:
        _check_columns(path, columns, config.targets)
        return config.targets
    found = [name for name in _TARGET_NAMES if name in columns]
    if len(found) != 1:
        raise DataError(
            f"which column is the target? There are {', '.join(columns)}",
            subject=path,
            hint="name it in data.targets (--data-targets COLUMN), or call it y",
        )
    return (found[0],)


def _check_columns(path: Path, columns: Collection[str], names: Sequence[str]) -> None:
    if not names:
        raise DataError("no column is left for the input", subject=path, hint=_HINT)
    for name in names:
        if name not in columns:
            raise DataError(
                f"no column {name!r} in this table",
                subject=path,
                hint=hint_for(name, list(columns)),
            )
