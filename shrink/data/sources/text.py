"""Texts with a label each, as token ids: in a table, or in files in folders by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError, ReportWarning
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset, dataset_of
from shrink.data.membership import content_hash
from shrink.data.slices import listed_values
from shrink.data.sources.texts import Texts, read_texts
from shrink.data.splits import chosen_rows
from shrink.data.token_config import TokensConfig
from shrink.data.tokens import Encoded, Vocabulary, encode, learn, read_vocabulary


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
    opened = open_texts(
        {split: [texts.texts[row] for row in own] for split, (_, own) in rows.items()}, config
    )
    ids = np.empty((len(texts.texts), (config.tokens or TokensConfig()).length), np.int32)
    for split, (_, own) in rows.items():
        ids[own] = opened.ids[split]
    classes = int(labels.max()) + 1 if labels.ndim == 1 else 0
    dataset = dataset_of(
        rows,
        ids,
        labels,
        texts.class_names or tuple(map(str, range(classes))),
        slices=listed_values(config.slices or (), texts.columns, path),
        # Texts that differ may have the same ids: words that the vocabulary lacks are alike.
        contents=np.array([content_hash(text.encode()) for text in texts.texts], np.uint64),
        identified_by="text",
    )
    return replace(
        dataset,
        notes=(*texts.notes, *opened.notes),
        warnings=opened.warnings,
        front_end=opened.vocabulary.front_end(),
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
            "all training texts have one label: nothing to tell apart", subject=path,
            hint="add texts of another label",
        )  # fmt: skip
    others = np.concatenate([labels[rows["validation"]], labels[rows["test"]]])
    unseen = np.setdiff1d(others, trained)
    if unseen.size:
        name = texts.class_names[unseen[0]] if texts.class_names else str(unseen[0])
        raise DataError(
            f"no training text has the label {name!r}", subject=path, hint="add some, or remove it"
        )


@dataclass(frozen=True)
class Opened:
    """The ids of each split, int32 (n, length), the vocabulary, and the notes and warnings."""

    ids: Mapping[str, np.ndarray]
    vocabulary: Vocabulary
    notes: tuple[str, ...]
    warnings: tuple[ReportWarning, ...]


def open_texts(texts: Mapping[str, Sequence[str]], config: DataConfig) -> Opened:
    """Return texts as ids, by a vocabulary that is learned from the training split alone.

    Args:
        texts: of each split.
        config: its `tokens` says how.

    Raises:
        DataError: the vocabulary's file cannot be read.
    """
    settings = config.tokens or TokensConfig()
    file = settings.vocabulary_file(Path.cwd())
    if file is None:
        vocabulary = learn(texts["train"], settings)
    else:
        vocabulary = read_vocabulary(file, settings)
    encoded = {split: encode(some, vocabulary) for split, some in texts.items()}
    origin = f"learned from {len(texts['train']):,} training texts" if file is None else file.name
    notes = (
        f"vocabulary: {len(vocabulary.tokens):,} tokens, {origin}",
        f"of the test texts {_share(encoded['test'])}",
    )
    warnings = _unknown_tokens(encoded, f"that was {origin}" if file is None else str(file))
    return Opened({s: one.ids for s, one in encoded.items()}, vocabulary, notes, warnings)


def _unknown_tokens(encoded: Mapping[str, Encoded], origin: str) -> tuple[ReportWarning, ...]:
    """Return a warning if the vocabulary lacks most tokens of a split."""
    shares = {split: one.unknown_share for split, one in encoded.items()}
    mostly = [
        f"{share:.1%} of the {split} tokens" for split, share in shares.items() if share > 0.5
    ]
    if not mostly:
        return ()
    return (
        ReportWarning(
            "unknown-tokens",
            f"the vocabulary {origin} lacks {', '.join(mostly)}: the model cannot tell these apart",
            "check that the vocabulary belongs to these texts, and data.tokens.lower and split to "
            "the vocabulary; for other texts or another language, train a model with a vocabulary "
            "of its own (leave data.tokens.vocabulary out)",
        ),
    )


def _share(encoded: Encoded) -> str:
    unknown = encoded.unknown_share
    cut = encoded.cut / max(len(encoded.ids), 1)
    length = encoded.ids.shape[1]
    return f"{unknown:.1%} of the tokens are unknown, and {cut:.1%} are cut to {length} tokens"
