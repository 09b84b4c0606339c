"""Windows of time series in a CSV, Parquet or npz file, split by time."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.data.arrays import LazyRows, check_finite
from shrink.data.config import DataConfig, SeriesConfig
from shrink.data.dataset import Dataset
from shrink.data.early import array_names, stored_arrays
from shrink.data.examples import SPLIT_NAMES
from shrink.data.folders import ALL
from shrink.data.source_table import SourceTable
from shrink.data.sources.csv import numbers
from shrink.data.sources.npz import read_arrays
from shrink.data.splits import tested_split
from shrink.data.table import SPLIT, Table, check_columns, is_parquet, read_cells, split_names


@dataclass(frozen=True)
class Rows:
    """The rows of one or several series, one behind the other in time.

    Attributes:
        x: float32 (rows, d), what is seen.
        y: float32 (rows, k), what is predicted.
        run: int64 (rows,), which series or part a row is of; a window crosses no border of them.
    """

    x: np.ndarray
    y: np.ndarray
    run: np.ndarray


def splits_by_time(run: np.ndarray, validation: float, test: float) -> np.ndarray:
    """Return the split of each row: the last rows of every series test, those before validate.

    Args:
        run: int64 (rows,), which series a row is of; the rows of each stand together.
        validation: fraction of a series' rows, rounded up.
        test: likewise.

    Returns:
        Places in `SPLIT_NAMES`, int64 (rows,).
    """
    split = np.zeros(len(run), np.int64)
    for start, end in stretches(run):
        held = math.ceil(round(test * (end - start), 6))
        before = math.ceil(round(validation * (end - start), 6))
        split[max(start, end - held - before) : end] = SPLIT_NAMES.index("validation")
        split[max(start, end - held) : end] = SPLIT_NAMES.index("test")
    return split


def stretches(values: np.ndarray) -> list[tuple[int, int]]:
    """Return start and end of each stretch of equal values, (n,)."""
    borders = np.flatnonzero(np.diff(values)) + 1
    ends = [*borders.tolist(), len(values)]
    return list(zip([0, *borders.tolist()], ends, strict=True)) if len(values) else []


def windows(
    rows: Rows,
    split: np.ndarray,
    config: SeriesConfig,
    subject: str,
    needed: Collection[str] = SPLIT_NAMES,
) -> tuple[LazyRows, LazyRows, dict[str, np.ndarray]]:
    """Return windows (window, d), the rows behind as targets, and the windows of each split.

    Targets are (horizon,) or (horizon, k). No window crosses the border of a series or of a split.

    Args:
        rows: the series.
        split: int64 (rows,), places in `SPLIT_NAMES`.
        config: window, horizon and stride.
        subject: the source, for messages.
        needed: the splits that must have a window.

    Raises:
        DataError: a split has no room for a window.
    """
    pieces = stretches(rows.run * len(SPLIT_NAMES) + split)
    starts = _starts(pieces, split, config)
    for number, name in enumerate(SPLIT_NAMES):
        if name in needed and not len(starts[name]):
            longest = max((e - s for s, e in pieces if split[s] == number), default=0)
            raise DataError(
                f"the {name} split has at most {longest} rows in succession, and a window with "
                f"its horizon takes {config.rows}",
                subject=subject,
                hint="give a longer series, a larger part of it (data.validation_split, "
                "data.test_split), or a smaller data.series.window",
            )
    first = np.concatenate([starts[name] for name in SPLIT_NAMES])[:, None]
    wide = rows.y.shape[1]
    target = (config.horizon,) if wide == 1 else (config.horizon, wide)

    def inputs(chosen: np.ndarray) -> np.ndarray:
        return np.asarray(rows.x[first[chosen] + np.arange(config.window)])

    def targets(chosen: np.ndarray) -> np.ndarray:
        y = rows.y[first[chosen] + config.window + np.arange(config.horizon)]
        return np.asarray(y.reshape(len(chosen), *target))

    count, width = len(first), rows.x.shape[1]
    x = LazyRows(inputs, (count, config.window, width), np.float32, is_decoded=True)
    y = LazyRows(targets, (count, *target), np.float32)
    ends = np.cumsum([len(starts[name]) for name in SPLIT_NAMES])
    own = np.split(np.arange(count), ends[:-1])
    return x, y, dict(zip(SPLIT_NAMES, own, strict=True))


def _starts(
    pieces: Sequence[tuple[int, int]], split: np.ndarray, config: SeriesConfig
) -> Mapping[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {name: [] for name in SPLIT_NAMES}
    for start, end in pieces:
        first = np.arange(start, end - config.rows + 1, config.stride, dtype=np.int64)
        found[SPLIT_NAMES[split[start]]].append(first)
    return {name: np.concatenate([np.zeros(0, np.int64), *f]) for name, f in found.items()}


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open `config.path`; the rows of a series stand in the order of time.

    Of a CSV file the columns of `data.inputs` are seen, by default all but those of group, time and
    split, and those of `data.targets` are predicted, by default the same. Of an npz file likewise
    the arrays (rows,) or (rows, d), by default x, and y where it is there. Where the file gives no
    splits the last rows test, and those before them validate.

    Raises:
        DataError: it cannot be read, a column is missing or holds no finite numbers, rows are not
            in the order of time, or a split has no room for a window.
    """
    path = Path(config.path or "").expanduser()
    settings = config.series or SeriesConfig()
    is_table = path.suffix.lower() == ".csv" or is_parquet(path)
    rows, columns, names = (_of_table if is_table else _of_arrays)(path, config, settings)
    given, evaluates = set(names), config.test_split == 1
    split = np.array([SPLIT_NAMES.index("train" if name == ALL else name) for name in names])
    if not evaluates:  # what the file does not give is the end of the training rows
        validation = 0.0 if "validation" in given else config.validation_split
        test = 0.0 if "test" in given else config.test_split
        split[split == 0] = splits_by_time(rows.run[split == 0], validation, test)
    needed = {"train" if name == ALL else name: name for name in given} if evaluates else {}
    tested = {s for s, name in needed.items() if name == tested_split(given)}
    x, y, own = windows(rows, split, settings, str(path), tested or SPLIT_NAMES)
    note = (
        f"windows of {settings.window} rows, {settings.horizon} predicted; none crosses the border "
        "of a split"
    )
    if evaluates:
        own = {name: own[split] for split, name in needed.items()}
    dataset = SourceTable(path, own, y, x, notes=(note,)).open(config, seed)
    known = dataset.given if evaluates else frozenset(given - {ALL, "train"})
    return replace(dataset, given=known, columns=columns)


Found = tuple[Rows, tuple[str, ...], Sequence[str]]
"""Rows, the columns of a table's inputs, and the split of each row, or `all`."""


def _of_table(path: Path, config: DataConfig, settings: SeriesConfig) -> Found:
    table = read_cells(path)
    named = [name for name in (settings.group, settings.time) if name is not None]
    check_columns(path, table.cells, named, needed=False)
    rest = [name for name in table.cells if name not in (*named, SPLIT)]
    inputs = config.inputs or tuple(name for name in rest if name not in (config.targets or ()))
    inputs = inputs or tuple(config.targets or ())
    targets = config.targets or inputs
    check_columns(path, table.cells, (*inputs, *targets))
    run = _runs(path, table, settings.group)
    if settings.time is not None:
        _check_order(path, table, settings.time, run)
    x, y = (np.stack([numbers(path, n, table) for n in names], 1) for names in (inputs, targets))
    names = split_names(path, table.cells[SPLIT]) if SPLIT in table.cells else [ALL] * len(run)
    return Rows(x, y, run), inputs, names


def _runs(path: Path, table: Table, group: str | None) -> np.ndarray:
    """Return which series each row is of, int64 (rows,)."""
    if group is None:
        return np.zeros(len(table.lines), np.int64)
    _, run = np.unique(np.array(table.cells[group]), return_inverse=True)
    seen = set[int]()
    for start, _ in stretches(run):
        if int(run[start]) in seen:
            raise DataError(
                f"line {table.lines[start]} continues the series "
                f"{table.cells[group][start]!r} after rows of another series",
                subject=path,
                hint=f"sort the file by {group}, then by time",
            )
        seen.add(int(run[start]))
    return np.asarray(run, np.int64)


def _check_order(path: Path, table: Table, column: str, run: np.ndarray) -> None:
    cells = _comparable(table.cells[column])
    for row in range(1, len(cells)):
        if run[row] == run[row - 1] and not cells[row - 1] < cells[row]:
            raise DataError(
                f"{column} in line {table.lines[row]} is {table.cells[column][row]!r}, not after "
                f"{table.cells[column][row - 1]!r}",
                subject=path,
                hint=f"sort the file by {column}, or name the column of several series in "
                "data.series.group",
            )


def _comparable(cells: Sequence[str]) -> np.ndarray:
    """Return times as numbers where all are; whole ones exactly, as nanoseconds need more bits."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return np.array([kind(cell) for cell in cells], object)
    return np.array(cells)


def _of_arrays(path: Path, config: DataConfig, settings: SeriesConfig) -> Found:
    if settings.group is not None or settings.time is not None:
        raise DataError(
            "data.series.group and time name columns of a CSV file",
            subject=path,
            hint="store each split of an npz file as one series, or write a CSV file",
        )
    names = array_names(path)
    stored = stored_arrays(path, names, config, needs_targets=config.targets is not None)
    inputs, suffixes, wanted = stored.inputs, stored.suffixes, stored.targets or stored.inputs
    arrays = read_arrays(path, {f"{n}{s}" for s in suffixes.values() for n in (*inputs, *wanted)})
    parts = {
        split: (_joined(path, arrays, inputs, suffix), _joined(path, arrays, wanted, suffix))
        for split, suffix in suffixes.items()
    }
    for split, (x, y) in parts.items():
        if len(x) != len(y):
            raise DataError(
                f"{', '.join(inputs)} has {len(x)} rows in {split}, {', '.join(wanted)} {len(y)}",
                subject=path,
                hint="each array needs one row for each time",
            )
    if len({(x.shape[1], y.shape[1]) for x, y in parts.values()}) > 1:
        raise DataError(
            f"{', '.join(dict.fromkeys((*inputs, *wanted)))} have other columns in "
            f"{' and '.join(parts)}",
            subject=path,
            hint="give each array the same columns in every split",
        )
    lengths = [len(x) for x, _ in parts.values()]
    rows = Rows(
        np.concatenate([x for x, _ in parts.values()]),
        np.concatenate([y for _, y in parts.values()]),
        np.repeat(np.arange(len(parts)), lengths),
    )
    return rows, (), np.repeat(list(parts), lengths).tolist()


def _joined(
    path: Path, arrays: Mapping[str, np.ndarray], names: Sequence[str], suffix: str
) -> np.ndarray:
    """Return arrays side by side, float32 (rows, columns)."""
    columns = []
    for name in (f"{name}{suffix}" for name in names):
        array = np.asarray(arrays[name])
        if array.ndim not in (1, 2) or array.dtype.kind not in "biuf" or not array.size:
            raise DataError(
                f"{name} is {array.dtype} of shape {array.shape}",
                subject=path,
                hint="a series is an array of numbers (rows,) or (rows, columns)",
            )
        check_finite(path, name, array)
        columns.append(array.reshape(len(array), -1).astype(np.float32))
    if len({len(column) for column in columns}) > 1:
        raise DataError("arrays of different numbers of rows", subject=path)
    return np.concatenate(columns, axis=1)
