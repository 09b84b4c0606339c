"""Sentences of a seeded grammar with their intents, as token ids; test templates are held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shrink.data.arrays import ArrayExamples
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.sentences import COUNTS, INTENTS, make_sentences
from shrink.data.slices import listed_values
from shrink.data.sources.text import open_texts


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Return the sentences; the splits are given, and the same for every seed.

    `data.slices` may name the column `template`.

    Raises:
        DataError: another column is named, or the vocabulary's file cannot be read.
    """
    made = {split: make_sentences(split, count) for split, count in COUNTS.items()}
    opened = open_texts({split: one.texts for split, one in made.items()}, config)
    examples, sliced = {}, {}
    for split, one in made.items():
        labels, rows = np.array(one.labels, np.int64), np.arange(len(one.labels))
        examples[split] = ArrayExamples(opened.ids[split], labels, rows)
        columns = {"template": one.templates}
        sliced[split] = listed_values(config.slices or (), columns, Path(config.source))
    return Dataset(
        train=examples["train"],
        validation=examples["validation"],
        test=examples["test"],
        class_names=INTENTS,
        num_classes=len(INTENTS),
        notes=opened.notes,
        given=frozenset({"validation", "test"}),
        slice_values=sliced,
        front_end=opened.vocabulary.front_end(),
    )
