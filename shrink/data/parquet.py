"""Parquet files as tables."""

from __future__ import annotations

from pathlib import Path

from shrink.base.errors import DataError, ResourceError
from shrink.base.packages import extra_hint
from shrink.data.table import Table, is_parquet, read_table


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
        DataError: it cannot be read, has no rows, two columns of one name, or an empty cell.
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
        problem = "no rows" if not table.num_rows else "two columns of one name"
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
