"""Texts with a label each, as token ids: in a table, or in files in folders by class."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError, ReportWarning
from shrink.data.arrays import check_not_constant
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.folders import TEXTS, shown
from shrink.data.membership import content_hash
from shrink.data.parquet import read_cells
from shrink.data.source_table import SourceTable
from shrink.data.sources.csv import listed_splits, table_targets
from shrink.data.sources.images import find_files
from shrink.data.splits import divided_rows
from shrink.data.table import Table, feature_columns, unclear_column
from shrink.data.token_config import TokensConfig
from shrink.data.tokens import encode, learn, read_vocabulary

JSON_LINES = (".jsonl", ".ndjson")
_TEXT_NAMES = ("text", "sentence", "utterance")
_HINT = 'every line is an object such as {"text": "turn it on", "label": "on"}'


def read_texts(path: Path, config: DataConfig) -> tuple[Sequence[str], SourceTable]:
    """Return the texts of `data.path`, each as it stands in the file, and their targets.

    Raises:
        DataError: it cannot be read, nobody can know which column is the text, a text is empty, or
            labels are neither whole numbers nor words.
    """
    if not path.is_dir():
        return _of_table(path, config)
    found = find_files(config, TEXTS)
    texts = [_content(Path(found.file(row))) for row in range(len(found.names))]
    return texts, replace(found, names=())


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot be read as UTF-8: {error}", subject=shown(file), hint="correct or remove it"
        ) from error


def _of_table(path: Path, config: DataConfig) -> tuple[Sequence[str], SourceTable]:
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
    classes = names or tuple(map(str, range(int(labels.max()) + 1 if labels.ndim == 1 else 0)))
    return table.cells[column], SourceTable(
        path,
        listed_splits(path, table),
        labels,
        class_names=classes,
        notes=(note,),
        columns=table.cells,
    )


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
        DataError: see `read_texts`; a single label; or a vocabulary that cannot be read.
    """
    path = Path(config.path or "").expanduser()
    texts, table = read_texts(path, config)
    rows = divided_rows(table.splits, table.y, seed, config, path)
    if config.target == "label":
        check_not_constant(path, "the training split", np.asarray(table.y)[rows["train"]])
    settings = config.tokens or TokensConfig()
    file = settings.vocabulary_file(Path.cwd())
    if file is None:  # learned from the training split alone
        if not len(rows["train"]):
            raise DataError(
                "no training texts to learn a vocabulary from",
                subject=path,
                hint="name the vocabulary that the model was made with: data.tokens.vocabulary",
            )
        vocabulary = learn((texts[row] for row in rows["train"]), settings)
        origin = f"learned from {len(rows['train']):,} training texts"
    else:
        vocabulary, origin = read_vocabulary(file, settings), file.name
    encoded = encode(texts, vocabulary)
    unknown = {split: encoded.unknown_share(own) for split, own in rows.items()}
    cut = encoded.cut[rows["test"]].mean() if len(rows["test"]) else 0.0
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
    dataset = replace(
        table,
        x=encoded.ids,
        notes=(*table.notes, *notes),
        # Texts that differ may have the same ids: words that the vocabulary lacks are alike.
        contents=np.array([content_hash(text.encode()) for text in texts], np.uint64),
        identified_by="text",
    ).open(config, seed)
    return replace(
        dataset, warnings=(unknown_tokens,) if mostly else (), front_end=vocabulary.front_end()
    )
