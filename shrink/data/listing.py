"""A CSV file that lists pictures with their labels: `path,label`; light."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrink.errors import DataError

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
    files: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    parts: tuple[str, ...] | None


def read_listing(path: Path, targets: Sequence[str]) -> Listing:
    """Read a CSV file with a column `path` and the columns of the targets.

    Raises:
        DataError: missing, no CSV file, without rows, or without such columns.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            header, rows = list(reader.fieldnames or ()), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read as CSV: {error}", subject=path, hint=_HINT) from error
    for name in ("path", *targets):
        if name not in header:
            raise DataError(
                f"no column {name}; there are {', '.join(header) or 'none'}",
                subject=path,
                hint=_HINT if name != "path" else "name the column of the files path",
            )
    if not rows:
        raise DataError("no pictures are listed", subject=path, hint=_HINT)
    _check_rows(path, rows)
    columns = {name: tuple(row[name] for row in rows) for name in header if name != "path"}
    return Listing(path, tuple(row["path"] for row in rows), columns, _split(path, columns))


def _check_rows(path: Path, rows: Sequence[Mapping[str | None, str | None]]) -> None:
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values() or not row["path"]:
            raise DataError(
                f"line {number} has not one value for each column", subject=path, hint=_HINT
            )


def _split(path: Path, columns: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    if "split" not in columns:
        return None
    unknown = sorted(set(columns["split"]) - set(_PARTS))
    if unknown:
        raise DataError(
            f"the column split has {unknown[0]!r}",
            subject=path,
            hint="it takes train, validation and test",
        )
    return tuple(_PARTS[part] for part in columns["split"])
