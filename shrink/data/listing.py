"""A CSV file that lists pictures with their labels: `path,label`; light."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from shrink.base.errors import DataError
from shrink.data.names import Names

_PARTS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
_HINT = "the first line is: path,label (and may have a column split)"


@dataclass(frozen=True)
class Listing:
    """The rows of a CSV file.

    Attributes:
        path: of the CSV file.
        files: of the pictures, relative to the CSV file's folder, or absolute.
        columns: every other column by name.
        parts: the part of each row, or None where there is no column `split`.
    """

    path: Path
    files: Names
    columns: Mapping[str, tuple[str, ...]]
    parts: tuple[str, ...] | None


def lists_pictures(path: Path) -> bool:
    """Whether a CSV file lists pictures, by its column `path`; any other is a table."""
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
        raise DataError(f"cannot be read as CSV: {error}", subject=path, hint=_HINT) from error
    if not files:
        raise DataError("no pictures are listed", subject=path, hint=_HINT)
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
                hint=_HINT
                if name != "path"
                else "name the column of the files path; a table of numbers is source: csv",
            )


def _columns(
    path: Path, header: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]]
) -> tuple[Names, dict[str, tuple[str, ...]]]:
    """Return the paths and each other column; a row is dropped as soon as it is read."""
    files = Names()
    cells: list[list[str]] = [[] for _ in header]
    place = header.index("path")
    for line, row in rows:
        if len(row) != len(header) or not row[place]:
            raise DataError(
                f"line {line} has not one value for each column", subject=path, hint=_HINT
            )
        for column, cell in zip(cells, row, strict=True):
            if column is cells[place]:
                files.append(cell)
            else:
                column.append(sys.intern(cell))  # labels are kept once
    columns = {name: tuple(column) for name, column in zip(header, cells, strict=True)}
    columns.pop("path")
    return files, columns


def _split(path: Path, columns: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    return part_names(path, columns["split"]) if "split" in columns else None


def part_names(path: Path, cells: Sequence[str]) -> tuple[str, ...]:
    """Return what a column `split` says: `train`, `validation` or `test` for each row.

    Raises:
        DataError: a cell says something else.
    """
    unknown = sorted(set(cells) - set(_PARTS))
    if unknown:
        raise DataError(
            f"the column split has {unknown[0]!r}",
            subject=path,
            hint="it takes train, validation and test",
        )
    return tuple(_PARTS[part] for part in cells)
