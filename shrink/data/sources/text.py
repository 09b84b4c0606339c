"""Texts with a label each, as token ids: in a table, or in files in folders by class."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError, ReportWarning
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, dataset_of
from shrink.data.folders import TEXTS, shown
from shrink.data.membership import content_hash
from shrink.data.parquet import read_cells
from shrink.data.slices import listed_values
from shrink.data.sources.csv import listed_splits, table_targets
from shrink.data.sources.images import find_files
from shrink.data.splits import chosen_rows
from shrink.data.table import Table, feature_columns, unclear_column
from shrink.data.token_config import TokensConfig
from shrink.data.tokens import encode, learn, read_vocabulary

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
    is_json = path.suffix.lower() in JSON_LINES
    table = read_json_lines(path) if is_json else read_cells(path)
    # The column of the texts, and of their label.
    features, targets = feature_columns(path, table.cells, config)
    if len(targets) > 1:
        raise DataError(
            f"a text has one label, and data.targets names {len(targets)} columns", subject=path
        )
    if config.inputs is None:
        features = tuple(name for name in _TEXT_NAMES if name in features) or features
    if len(features) != 1:
        raise unclear_column(path, "text", features, "text", "inputs")
    column, target = features[0], next(iter(targets), "")
    for line, text in zip(table.lines, table.cells[column], strict=True):
        if not text.strip():
            raise DataError(
                f"{column} in line {line} is empty", subject=path, hint="remove the line"
            )
    names, labels = table_targets(path, table, targets, config.classes, lambda _: True)
    note = f"columns: {column} in, {target or 'nothing'} out"
    splits = listed_splits(path, table)
    return Texts(table.cells[column], labels, names, splits, table.cells, (note,))


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


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Open the texts at `config.path`: int32 ids (n, length), by `data.tokens`.

    Raises:
        DataError: see `read_texts`; a single label; a label that training never sees; or a
            vocabulary that cannot be read.
    """
    path = Path(config.path or "").expanduser()
    texts = read_texts(path, config)
    labels = texts.targets
    rows = chosen_rows(texts.splits, labels, seed, config, path)
    _check_labels(path, texts, {split: own for split, (_, own) in rows.items()}, config)
    settings = config.tokens or TokensConfig()
    file = settings.vocabulary_file(Path.cwd())
    if file is None:  # learned from the training split alone
        train = rows["train"][1]
        vocabulary = learn((texts.texts[row] for row in train), settings)
        origin = f"learned from {len(train):,} training texts"
    else:
        vocabulary, origin = read_vocabulary(file, settings), file.name
    encoded = encode(texts.texts, vocabulary)
    unknown = {split: encoded.unknown_share(own) for split, (_, own) in rows.items()}
    cut = encoded.cut[rows["test"][1]].mean() if len(rows["test"][1]) else 0.0
    notes = (
        f"vocabulary: {len(vocabulary.tokens):,} tokens, {origin}",
        f"of the test texts {unknown['test']:.1%} of the tokens are unknown, and {cut:.1%} are cut "
        f"to {settings.length} tokens",
    )
    mostly = [f"{one:.1%} of the {split} tokens" for split, one in unknown.items() if one > 0.5]
    unknown_tokens = ReportWarning(
        "unknown-tokens",
        f"the vocabulary {f'that was {origin}' if file is None else file} lacks "
        f"{', '.join(mostly)}: the model cannot tell these apart",
        "check that the vocabulary belongs to these texts, and data.tokens.lower and split to "
        "the vocabulary; for other texts or another language, train a model with a vocabulary "
        "of its own (leave data.tokens.vocabulary out)",
    )
    classes = int(labels.max()) + 1 if labels.ndim == 1 else 0
    dataset = dataset_of(
        rows,
        encoded.ids,
        labels,
        texts.class_names or tuple(map(str, range(classes))),
        slices=listed_values(config.slices or (), texts.columns, path),
        # Texts that differ may have the same ids: words that the vocabulary lacks are alike.
        contents=np.array([content_hash(text.encode()) for text in texts.texts], np.uint64),
        identified_by="text",
    )
    return replace(
        dataset,
        notes=(*texts.notes, *notes),
        warnings=(unknown_tokens,) if mostly else (),
        front_end=vocabulary.front_end(),
    )


def _check_labels(
    path: Path, texts: Texts, rows: Mapping[str, np.ndarray], config: DataConfig
) -> None:
    if config.target != "label":
        return
    labels = texts.targets
    trained = np.unique(labels[rows["train"]])
    if len(trained) < 2:
        raise DataError(
            "all training texts have one label; a classifier needs at least two classes",
            subject=path,
            hint="add texts of another label",
        )
    others = np.concatenate([labels[rows["validation"]], labels[rows["test"]]])
    unseen = np.setdiff1d(others, trained)
    if unseen.size:
        name = texts.class_names[unseen[0]] if texts.class_names else str(unseen[0])
        raise DataError(
            f"no training text has the label {name!r}", subject=path, hint="add some, or remove it"
        )
