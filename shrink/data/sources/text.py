"""Texts with a label each, as token ids: in a table, or in files in folders by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError, ReportWarning
from shrink.data.arrays import ArrayExamples
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES
from shrink.data.membership import Membership, content_hash
from shrink.data.slices import listed_values
from shrink.data.sources.texts import Texts, read_texts
from shrink.data.splits import derived_splits
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
    rows = _rows(path, texts, config, seed)
    _check_labels(path, texts, rows, config)
    sliced = listed_values(config.slices or (), texts.columns, path)
    opened = open_texts({s: [texts.texts[row] for row in rows[s]] for s in SPLIT_NAMES}, config)
    hashes = np.array([content_hash(text.encode()) for text in texts.texts], np.uint64)
    labels = texts.targets
    classes = int(labels.max()) + 1 if labels.ndim == 1 else None
    names = texts.class_names or (tuple(map(str, range(classes))) if classes else ())
    examples = {
        split: ArrayExamples(opened.ids[split], labels[chosen], np.arange(len(chosen)))
        for split, chosen in rows.items()
    }
    return Dataset(
        train=examples["train"],
        validation=examples["validation"],
        test=examples["test"],
        class_names=names,
        num_classes=len(names) or None,
        notes=(*texts.notes, *opened.notes),
        warnings=opened.warnings,
        given=frozenset(texts.splits or ()) - {"train"},
        # Texts that differ may have the same ids: words that the vocabulary lacks are alike.
        known_membership=Membership("text", {s: hashes[rows[s]] for s in SPLIT_NAMES}),
        slice_values={
            split: {by: values[rows[split]] for by, values in sliced.items()}
            for split in SPLIT_NAMES
        },
        front_end=opened.vocabulary.front_end(),
    )


def _rows(path: Path, texts: Texts, config: DataConfig, seed: int) -> dict[str, np.ndarray]:
    """Return which texts each split has, int64 (n,)."""
    labels = texts.targets if texts.targets.ndim == 1 else None
    if texts.splits is None:
        return derived_splits(labels, len(texts.texts), seed, config, (), path)
    split = np.array(texts.splits)
    given = {str(name): np.flatnonzero(split == name) for name in np.unique(split)}
    if "train" not in given:
        raise DataError("no text is of the split train", subject=path, hint="add such texts")
    train = given["train"]
    own = None if labels is None else labels[train]
    derived = derived_splits(own, len(train), seed, config, given, path)
    return {**{name: train[chosen] for name, chosen in derived.items()}, **_others(given)}


def _others(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: rows for name, rows in given.items() if name != "train"}


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
