"""Texts with a label each, as token ids: in a table, or in files in folders by class."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError, ReportWarning
from shrink.base.foreign import Json
from shrink.data.arrays import check_not_constant
from shrink.data.config import DataConfig, TokensConfig
from shrink.data.dataset import Dataset
from shrink.data.folders import TEXTS, shown
from shrink.data.membership import content_hash
from shrink.data.source_table import SourceTable
from shrink.data.sources.csv import listed_splits, table_targets
from shrink.data.sources.images import find_files
from shrink.data.splits import divided_rows
from shrink.data.table import Table, feature_columns, read_cells, unclear_column

_WORDS = re.compile(r"\w+|[^\w\s]")
_SPLITTERS: Mapping[str, Callable[[str], list[str]]] = {
    "words": _WORDS.findall,
    "whitespace": str.split,
    # A file of tokens has one on each line, so that none can be the end of a line.
    "characters": lambda text: [" " if one.isspace() else one for one in text],
}


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id.

    Attributes:
        tokens: each once, at the place of its id.
        config: how texts are split, and which tokens stand for padding and unknown ones.
    """

    tokens: tuple[str, ...]
    config: TokensConfig

    def front_end(self) -> dict[str, Json]:
        """Return what an application must know to make the model's input of a text."""
        told = self.config.model_dump(include={"length", "lower", "split", "padding", "unknown"})
        return {
            **told,
            "padding_id": self.tokens.index(self.config.padding),
            "unknown_id": self.tokens.index(self.config.unknown),
            "vocabulary": list(self.tokens),
        }


def tokens_of(text: str, config: TokensConfig) -> list[str]:
    """Return a text's tokens, in order; there may be none."""
    return _SPLITTERS[config.split](text.lower() if config.lower else text)


def learn(texts: Iterable[str], config: TokensConfig) -> Vocabulary:
    """Return the vocabulary of some texts: the most frequent tokens first, equals by their text.

    Args:
        texts: of the training split, and of no other.
        config: its `size` and `min_count` say which tokens are in it.
    """
    counts = Counter(token for text in texts for token in tokens_of(text, config))
    special = (config.padding, config.unknown)
    ranked = sorted(
        (token for token, count in counts.items() if count >= config.min_count),
        key=lambda token: (-counts[token], token),
    )
    kept = [token for token in ranked if token not in special]
    return Vocabulary((*special, *kept[: config.size - len(special)]), config)


def read_vocabulary(path: Path, config: TokensConfig) -> Vocabulary:
    """Return the vocabulary of a file: a token a line, whose number from 0 is its id.

    Raises:
        DataError: it cannot be read, has an empty line or a token twice, or lacks the tokens of
            padding and of what is unknown.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the vocabulary cannot be read: {error}",
            subject=path,
            hint="data.tokens.vocabulary names a UTF-8 file with a token on each line",
        ) from error
    tokens = [line.removesuffix("\r") for line in lines]
    if tokens and not tokens[-1]:
        tokens.pop()
    first: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if not token:
            raise DataError(f"line {number} is empty", subject=path, hint="a token on each line")
        if first.setdefault(token, number) != number:
            raise DataError(
                f"line {number} has {token!r}, and so has line {first[token]}",
                subject=path,
                hint="each token needs one id: remove the second line",
            )
    for key, token in (("padding", config.padding), ("unknown", config.unknown)):
        if token not in first:
            raise DataError(
                f"no line is {token!r}, the token of data.tokens.{key}",
                subject=path,
                hint=f"add the line, or name the file's own in data.tokens.{key}",
            )
    return Vocabulary(tuple(tokens), config)


@dataclass(frozen=True)
class Encoded:
    """Texts as ids.

    Attributes:
        ids: int32 (n, length).
        tokens: how many each text has, those that were cut off not counted, (n,).
        unknown: how many of these the vocabulary lacks, (n,).
        cut: whether a text was longer, (n,).
    """

    ids: np.ndarray
    tokens: np.ndarray
    unknown: np.ndarray
    cut: np.ndarray

    def unknown_share(self, rows: np.ndarray) -> float:
        """Return the unknown tokens of some texts as a fraction of all that these have."""
        return int(self.unknown[rows].sum()) / max(int(self.tokens[rows].sum()), 1)


def encode(texts: Sequence[str], vocabulary: Vocabulary) -> Encoded:
    """Return texts as ids of one length, cut or padded behind."""
    config = vocabulary.config
    number = {token: index for index, token in enumerate(vocabulary.tokens)}
    other = number[config.unknown]
    ids = np.full((len(texts), config.length), number[config.padding], np.int32)
    tokens, unknown = np.zeros((2, len(texts)), np.int64)
    cut = np.zeros(len(texts), bool)
    for row, text in enumerate(texts):
        every = tokens_of(text, config)
        cut[row] = len(every) > config.length
        found = [number.get(token) for token in every[: config.length]]
        tokens[row], unknown[row] = len(found), found.count(None)
        ids[row, : len(found)] = [other if index is None else index for index in found]
    return Encoded(ids, tokens, unknown, cut)


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
        DataError: it cannot be read, or a line is not a JSON object of texts and numbers with the
            keys of the first.
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
        raise DataError(f"line {line} is not JSON: {error}", subject=path, hint=_HINT) from error
    if not isinstance(value, dict):
        raise DataError(f"line {line} is not a JSON object", subject=path, hint=_HINT)
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
    is_word = len(table.class_names) == 1 and not table.class_names[0].isdecimal()
    if config.target == "label" and not config.takes_one_class(is_word):
        name = "test" if config.test_split == 1 else "train"
        check_not_constant(path, f"the {name} split", np.asarray(table.y)[rows[name]])
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
