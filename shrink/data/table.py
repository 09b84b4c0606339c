"""Tables in CSV and Parquet files, and lists of images."""

from __future__ import annotations

import csv
import itertools
import sys
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from shrink.base.errors import DataError, ResourceError, hint_for
from shrink.base.packages import extra_hint
from shrink.data.config import DataConfig
from shrink.data.folders import SPLIT_OF_NAME

INDEX_COLUMNS = ("", "Unnamed: 0")
"""Names of the row numbers that pandas writes; these are no inputs unless `data.inputs` says so."""
PARQUET_ENDINGS = (".parquet", ".pq")
_LIST_HINT = (
    "a list of files begins with the line path,label (a column split, and others for data.slices, "
    "may follow); every other line names a file, relative to the list, and its label"
)


def is_parquet(path: Path) -> bool:
    """Whether a file's name says that it is a Parquet file."""
    return path.suffix.lower() in PARQUET_ENDINGS


def lists_images(path: Path) -> bool:
    """Whether a CSV file lists images, by its column `path`; any other is a table."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return "path" in next(csv.reader(stream), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return True  # read_listing says what is wrong


def numbered_rows(stream: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file that are not blank, each with the line where it begins.

    Lines count from 1, and a value in quotes may hold several of them. Values are separated by what
    the first line has most of: commas, semicolons or tabs.
    """
    first = next(iter(stream), "")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(itertools.chain([first], stream), delimiter=delimiter, strict=True)
    line = 1
    for row in reader:
        if row:
            yield line, row
        line = reader.line_num + 1


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
    lines: Sequence[int]


def read_table(path: Path, hint: str = _HINT) -> Table:
    """Read a table.

    Raises:
        DataError: it is not a CSV file, has no rows, two columns of the same name, or a row of
            another length.
    """
    lines, columns = array("q"), list[list[str]]()
    header: list[str] = []
    for line, row in _rows(path, hint):
        if not header:
            header, columns = row, [[] for _ in row]
        elif len(row) != len(header):
            raise DataError(
                f"line {line} has {len(row)} values for {len(header)} columns",
                subject=path,
                hint=hint,
            )
        else:
            lines.append(line)
            for column, cell in zip(columns, row, strict=True):
                column.append(sys.intern(cell))  # labels are kept once
    if not lines or len(set(header)) < len(header):
        problem = "two columns have the same name" if lines else "no rows"
        raise DataError(f"{problem} in this table", subject=path, hint=hint)
    return Table(dict(zip(header, map(tuple, columns), strict=True)), lines)


def read_listing(path: Path, targets: Sequence[str]) -> Table:
    """Read a CSV file with a column `path` and the columns of the targets.

    Raises:
        DataError: missing, no CSV file, without rows, or without such columns.
    """
    header = read_header(path, _LIST_HINT)
    for name in ("path", *targets):
        if name not in header:
            raise DataError(
                f"no column {name}; there are {', '.join(header) or 'none'}",
                subject=path,
                hint=f"{_LIST_HINT}: rename the column of the files to path; of a table of numbers "
                "without files set data.source: csv"
                if name == "path"
                else f"rename the column to {name}, or set data.targets to what the labels are "
                "called; without labels set data.target: none",
            )
    table = read_table(path, _LIST_HINT)
    if "" in table.cells["path"]:
        line = table.lines[table.cells["path"].index("")]
        raise DataError(f"line {line} names no file", subject=path, hint=_LIST_HINT)
    return table


def read_header(path: Path, hint: str = _HINT) -> list[str]:
    """Return the names of a table's columns.

    Raises:
        DataError: it is no CSV file.
    """
    return next(_rows(path, hint), (1, list[str]()))[1]


def _rows(path: Path, hint: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file with their lines, the header first."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield from numbered_rows(stream)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        hint = "save the file as UTF-8" if isinstance(error, UnicodeDecodeError) else hint
        raise DataError(f"cannot be read as CSV: {error}", subject=path, hint=hint) from error


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
    left_out = (*targets, SPLIT, *INDEX_COLUMNS)
    features = config.inputs or tuple(c for c in columns if c not in left_out)
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
        raise unclear_column(path, "target", columns, "y", "targets")
    return (candidates[0],)


def unclear_column(
    path: Path, role: str, columns: Collection[str], name: str, key: str
) -> DataError:
    """Return the error where none, or several, of the columns could have a role."""
    no_header = all(map(is_number, columns))
    return DataError(
        f"cannot infer the {role} column; columns: {', '.join(columns)}",
        subject=path,
        hint=("these are numbers, but the first line must name the columns; " * no_header)
        + f"call it {name}, or name it in a recipe's data.{key} (commands that run a stage: "
        f"--data-{key} COLUMN); where each row names a file, call that column path",
    )


def is_number(cell: str) -> bool:
    """Whether a cell holds a number; `nan` and `inf` are some."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


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


def read_cells(path: Path) -> Table:
    """Read a table from a Parquet file, or by any other ending from a CSV file.

    Raises:
        DataError: see `read_parquet` and `read_table`.
        ResourceError: the package pyarrow is missing.
    """
    return read_parquet(path) if is_parquet(path) else read_table(path)


def read_parquet(path: Path) -> Table:
    """Read a table: texts as they are, numbers as Python writes them, 1 and 0 for true and false.

    Lines are rows, from 1.

    Raises:
        DataError: it cannot be read, has no rows, two columns have the same name, or an empty cell.
        ResourceError: the package pyarrow is missing.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ResourceError(
            f"{path.name} needs the package pyarrow", hint=extra_hint("parquet")
        ) from error
    try:
        # One file, and no data set of the folders around it, whose names would become columns.
        table = pyarrow.parquet.ParquetFile(path).read()
    except (OSError, pyarrow.ArrowException) as error:
        brief = " ".join(str(error).split())[:200]
        raise DataError(f"cannot be read as Parquet: {brief}", subject=path) from error
    names = table.column_names
    if not table.num_rows or len(set(names)) < len(names):
        problem = "no rows" if not table.num_rows else "two columns have the same name"
        raise DataError(f"{problem} in this table", subject=path)
    cells = {
        name: tuple(map(_text, column.to_pylist()))
        for name, column in zip(names, table.columns, strict=True)
    }
    for name, column in cells.items():
        if None in column:
            raise DataError(
                f"{name} in row {column.index(None) + 1} is empty",
                subject=path,
                hint="fill the cell, or remove the row",
            )
    filled = {name: tuple(str(cell) for cell in column) for name, column in cells.items()}
    return Table(filled, tuple(range(1, table.num_rows + 1)))


def _text(cell: object) -> str | None:
    """Return a cell as a CSV file would have it; None where it is empty."""
    if cell is None:
        return None
    return str(int(cell)) if isinstance(cell, bool) else str(cell)
