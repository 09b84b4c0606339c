"""Texts in CSV files, JSON lines, Parquet files, or text files in folders by class."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.data.config import DataConfig
from shrink.data.folders import TEXTS, class_order, shown
from shrink.data.parquet import read_cells
from shrink.data.sources.images import find_files, listed_splits
from shrink.data.table import Table, feature_columns

JSON_LINES = (".jsonl", ".ndjson")
_TEXT_NAMES = ("text", "sentence", "utterance")
_HINT = 'every line is an object such as {"text": "turn it on", "label": "on"}'


@dataclass(frozen=True)
class Texts:
    """Texts with their targets.

    Attributes:
        texts: each as it stands in the file.
        targets: int64 (n,) labels, or float32 (n, k).
        class_names: by label; empty where targets are real, or labels are numbers.
        splits: rows of the splits that the source gives, int64 (m,), or of `all`.
        columns: every column by name, for slices.
        notes: what a reader should know of how they were read.
    """

    texts: Sequence[str]
    targets: np.ndarray
    class_names: tuple[str, ...]
    splits: Mapping[str, np.ndarray]
    columns: Mapping[str, Sequence[str]]
    notes: tuple[str, ...] = ()


def read_texts(path: Path, config: DataConfig) -> Texts:
    """Read the texts of `data.path`.

    Raises:
        DataError: it cannot be read, nobody can know which column is the text, a text is empty, or
            labels are neither whole numbers nor words.
    """
    return _of_folder(config) if path.is_dir() else _of_table(path, config)


def _of_folder(config: DataConfig) -> Texts:
    found = find_files(config, TEXTS)
    texts = [_content(Path(found.file(row))) for row in range(len(found.names))]
    return Texts(texts, found.targets, found.class_names, found.splits, {}, found.notes)


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot be read as UTF-8: {error}", subject=shown(file), hint="correct or remove it"
        ) from error


def _of_table(path: Path, config: DataConfig) -> Texts:
    table = _read(path)
    # The column of the texts, and of their label.
    features, targets = feature_columns(path, table.cells, config)
    if len(targets) > 1:
        raise DataError(
            f"a text has one label, and data.targets names {len(targets)} columns", subject=path
        )
    if config.inputs is None:
        features = tuple(name for name in _TEXT_NAMES if name in features) or features
    if len(features) != 1:
        raise DataError(
            f"which column is the text? There are {', '.join(features)}",
            subject=path,
            hint="name it in data.inputs (--data-inputs COLUMN), or call it text",
        )
    column, target = features[0], next(iter(targets), "")
    for line, text in zip(table.lines, table.cells[column], strict=True):
        if not text.strip():
            raise DataError(
                f"{column} in line {line} is empty", subject=path, hint="remove the line"
            )
    names, labels = _labels(path, target, table, config)
    note = f"columns: {column} in, {target or 'nothing'} out"
    splits = listed_splits(path, table)
    return Texts(table.cells[column], labels, names, splits, table.cells, (note,))


def _read(path: Path) -> Table:
    if path.suffix.lower() in JSON_LINES:
        return read_json_lines(path)
    return read_cells(path)


def _labels(
    path: Path, column: str, table: Table, config: DataConfig
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the class names, and labels int64 (n,); of numbers no names."""
    if not column:
        return (), np.zeros((len(table.lines), 0), np.float32)
    cells = table.cells[column]
    if all(cell.isdecimal() and len(cell) < 7 for cell in cells):
        return (), np.array([int(cell) for cell in cells], np.int64)
    names = class_order(set(cells), config.classes, path)
    number = {name: label for label, name in enumerate(names)}
    return names, np.array([number[cell] for cell in cells], np.int64)


def read_json_lines(path: Path) -> Table:
    """Read a table of JSON objects, one a line: texts as they are, numbers as JSON writes them.

    Raises:
        DataError: it cannot be read, a line is no object of texts and numbers, or has not the keys
            of the first.
    """
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for line, text in enumerate(stream, start=1):
                if text.strip():
                    rows.append((line, _row(path, line, text)))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", subject=path, hint=_HINT) from error
    if not rows:
        raise DataError("no rows in this file", subject=path, hint=_HINT)
    keys = rows[0][1].keys()
    for line, row in rows:
        if row.keys() != keys:
            apart = sorted(row.keys() ^ keys)
            raise DataError(
                f"line {line} and line {rows[0][0]} have not the same keys: {', '.join(apart)}",
                subject=path,
                hint=_HINT,
            )
    cells = {key: tuple(row[key] for _, row in rows) for key in keys}
    return Table(cells, tuple(line for line, _ in rows))


def _row(path: Path, line: int, text: str) -> dict[str, str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"line {line} is no JSON: {error}", subject=path, hint=_HINT) from error
    if not isinstance(value, dict):
        raise DataError(f"line {line} is no object", subject=path, hint=_HINT)
    for key, cell in value.items():
        if isinstance(cell, bool) or not isinstance(cell, str | int | float):
            raise DataError(
                f"{key} in line {line} is {json.dumps(cell)[:40]}, neither a text nor a number",
                subject=path,
                hint=_HINT,
            )
    return {key: cell if isinstance(cell, str) else repr(cell) for key, cell in value.items()}
