"""Lists of files and names of classes.

A list of 500,000 names takes 50 MB as Python's strings, and half of that in one piece.
"""

from __future__ import annotations

import csv
import os
import sys
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, overload

from shrink.base.errors import DataError
from shrink.base.suggest import did_you_mean


class Names(Sequence[str]):
    """File names, kept as bytes one after the other: 8 bytes each beside the name itself.

    Args:
        names: to begin with.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])
        self._rows: array[int] | None = None
        self._folder = b""
        for name in names:
            self.append(name)

    def append(self, name: str) -> None:
        """Add a name at the end.

        Raises:
            TypeError: these names were taken from others, and share their memory.
        """
        if self._rows is not None or self._folder:
            raise TypeError("names that were taken from others cannot grow")
        self._bytes += os.fsencode(name)
        self._ends.append(len(self._bytes))

    def encoded(self, index: int) -> bytes:
        """Return the bytes of one name; `index` counts from 0."""
        row = self._row(index)
        name = bytes(self._bytes[self._ends[row] : self._ends[row + 1]])
        return name if name.startswith(b"/") else self._folder + name

    def take(self, indices: Iterable[int]) -> Names:
        """Return some of the names, in the order asked for; they share this one's memory."""
        taken = self._sharing(self._folder)
        taken._rows = array("q", (self._row(int(index)) for index in indices))
        return taken

    def under(self, folder: str) -> Names:
        """Return the names as paths in a folder, but for those that are absolute."""
        found = self._sharing(os.fsencode(folder) + b"/")
        found._rows = self._rows
        return found

    def _sharing(self, folder: bytes) -> Names:
        names = Names()
        names._bytes, names._ends, names._folder = self._bytes, self._ends, folder
        return names

    def unique(self) -> Names:
        """Return each name once, in the order they appear in first."""
        seen: set[int] = set()  # 64 bits of each name, for the names themselves take thrice as much
        first = array("q")
        for index, name in enumerate(self):
            if (key := hash(name)) not in seen:
                seen.add(key)
                first.append(index)
        return self.take(first)

    def _row(self, index: int) -> int:
        return index if self._rows is None else self._rows[index]

    def __len__(self) -> int:
        return len(self._ends) - 1 if self._rows is None else len(self._rows)

    def __iter__(self) -> Iterator[str]:
        for index in range(len(self)):
            yield os.fsdecode(self.encoded(index))

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Names: ...

    def __getitem__(self, index: int | slice) -> str | Names:
        if isinstance(index, slice):
            return self.take(range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return os.fsdecode(self.encoded(index % len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it can grow

    def __repr__(self) -> str:
        return f"Names({list(self)})"


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


def class_order(
    found: Collection[str], wanted: Sequence[str] | None, path: Path
) -> tuple[str, ...]:
    """Return the class names by label.

    Args:
        found: the names that the data has.
        wanted: `data.classes`; it may name classes that the data has no example of.
        path: of the data, for messages.

    Raises:
        DataError: a class of the data is not in `wanted`, or one is there twice.
    """
    if wanted is None:
        return tuple(sorted(found))
    if len(set(wanted)) < len(wanted):
        raise DataError("data.classes names a class twice", subject=path)
    for name in sorted(set(found) - set(wanted)):
        near = did_you_mean(name, list(wanted))
        raise DataError(
            f"the class {name!r} is not in data.classes",
            subject=path,
            hint=f"is {near} of data.classes meant? The data has {', '.join(sorted(found))}"
            if near
            else f"the data has {', '.join(sorted(found))}",
        )
    return tuple(wanted)


def named_classes(
    names: tuple[str, ...], count: int | None, wanted: Sequence[str] | None, path: str | None
) -> tuple[str, ...]:
    """Return the names of classes that the data itself only counts: `data.classes`, else `names`.

    Args:
        names: by label, as the source has them: numbers, where it only counts.
        count: how many there are; None where targets are real.
        wanted: `data.classes`.
        path: of the data, for messages.

    Raises:
        DataError: there are more classes than `data.classes` names, or the data has names of its
            own for the labels that it stores, in another order.
    """
    if wanted is None or count is None or names == tuple(wanted):
        return names
    if len(wanted) < count:
        raise DataError(
            f"data.classes has {len(wanted)} names, and the labels go up to {count - 1}",
            subject=path,
        )
    _check_order(names, wanted, path)
    return tuple(wanted)


def _check_order(names: Sequence[str], wanted: Sequence[str], path: str | None) -> None:
    """Raise `DataError` where labels that the data stores have names in another order."""
    moved = any(name in wanted and list(wanted).index(name) != i for i, name in enumerate(names))
    numbers = list(names) == [str(label) for label in range(len(names))]
    if moved and (not numbers or set(names) == set(wanted)):  # 1, 2, 3 may be what 0, 1, 2 mean
        raise DataError(
            f"data.classes has another order than the labels, which are {', '.join(names)}",
            subject=path,
            hint="leave data.classes out, and give the model's outputs the order of the labels: "
            "only words and folders are numbered by data.classes",
        )
