"""CSV files: tables of numbers, and lists of images; light."""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from shrink.base.errors import DataError, hint_for
from shrink.data.config import DataConfig
from shrink.data.folders import SPLIT_OF_NAME, Names

PARQUET_ENDINGS = (".parquet", ".pq")
_LIST_HINT = "the first line is: path,label (and may have a column split)"


def is_parquet(path: Path) -> bool:
    """Whether a file's name says that it is a Parquet file, which `shrink.data.parquet` reads."""
    return path.suffix.lower() in PARQUET_ENDINGS


@dataclass(frozen=True)
class Listing:
    """The rows of a CSV file.

    Attributes:
        path: of the CSV file.
        files: of the images, relative to the CSV file's folder, or absolute.
        columns: every other column by name.
        splits: the split of each row, or None where there is no column `split`.
    """

    path: Path
    files: Names
    columns: Mapping[str, tuple[str, ...]]
    splits: tuple[str, ...] | None


def lists_images(path: Path) -> bool:
    """Whether a CSV file lists images, by its column `path`; any other is a table."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return "path" in next(csv.reader(stream), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return True  # read_listing says what is wrong


def read_listing(path: Path, targets: Sequence[str]) -> Listing:
    """Read a CSV file with a column `path` and the columns of the targets.

    Raises:
        DataError: missing, no CSV file, without rows, or without such columns.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = numbered_rows(stream)
            _, header = next(rows, (1, list[str]()))
            _check_header(path, header, targets)
            files, columns = _columns(path, header, rows)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read as CSV: {error}", subject=path, hint=_LIST_HINT) from error
    if not files:
        raise DataError("no images are listed", subject=path, hint=_LIST_HINT)
    return Listing(path, files, columns, _split(path, columns))


def numbered_rows(stream: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file that are not blank, each with the line where it begins.

    Lines count from 1, and a value in quotes may hold several of them.
    """
    reader = csv.reader(stream, strict=True)
    line = 1
    for row in reader:
        if row:
            yield line, row
        line = reader.line_num + 1


def _check_header(path: Path, header: Sequence[str], targets: Sequence[str]) -> None:
    for name in ("path", *targets):
        if name not in header:
            raise DataError(
                f"no column {name}; there are {', '.join(header) or 'none'}",
                subject=path,
                hint=_LIST_HINT
                if name != "path"
                else "name the column of the files path; a table of numbers is source: csv",
            )


def _columns(
    path: Path, header: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]]
) -> tuple[Names, dict[str, tuple[str, ...]]]:
    """Return the paths and each other column; a row is dropped as soon as it is read."""
    files = Names()
    cells: list[list[str]] = [[] for _ in header]
    index = header.index("path")
    for line, row in rows:
        if len(row) != len(header) or not row[index]:
            raise DataError(
                f"line {line} has not one value for each column", subject=path, hint=_LIST_HINT
            )
        for column, cell in zip(cells, row, strict=True):
            if column is cells[index]:
                files.append(cell)
            else:
                column.append(sys.intern(cell))  # labels are kept once
    columns = {name: tuple(column) for name, column in zip(header, cells, strict=True)}
    columns.pop("path")
    return files, columns


def _split(path: Path, columns: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    return split_names(path, columns["split"]) if "split" in columns else None


def split_names(path: Path, cells: Sequence[str]) -> tuple[str, ...]:
    """Return what a column `split` says: `train`, `validation` or `test` for each row.

    Raises:
        DataError: a cell says something else.
    """
    unknown = sorted(set(cells) - set(SPLIT_OF_NAME))
    if unknown:
        raise DataError(
            f"the column split has {unknown[0]!r}",
            subject=path,
            hint="it takes train, validation and test",
        )
    return tuple(SPLIT_OF_NAME[split] for split in cells)


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
    check_columns(path, columns, features)
    return features, targets


def _target_columns(path: Path, columns: Collection[str], config: DataConfig) -> tuple[str, ...]:
    if config.target != "label":
        return ()
    if config.targets is not None:
        check_columns(path, columns, config.targets)
        return config.targets
    candidates = [name for name in _TARGET_NAMES if name in columns]
    if len(candidates) != 1:
        raise DataError(
            f"which column is the target? There are {', '.join(columns)}",
            subject=path,
            hint="name it in data.targets (--data-targets COLUMN), or call it y",
        )
    return (candidates[0],)


def check_columns(
    path: Path, columns: Collection[str], names: Sequence[str], needed: bool = True
) -> None:
    """Raise `DataError` where a table lacks a column, or, if any is needed, none is named."""
    if needed and not names:
        raise DataError("no column is left for the input", subject=path, hint=_HINT)
    for name in names:
        if name not in columns:
            raise DataError(
                f"no column {name!r} in this table",
                subject=path,
                hint=hint_for(name, list(columns)),
            )
