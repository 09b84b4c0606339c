"""Synthesised machine sounds for anomaly detection: normal ones to train on, faults to find."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.data.arrays import ArrayExamples
from shrink.data.audio_config import AudioConfig
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES
from shrink.data.front_end import features
from shrink.data.machine import COUNTS, NORMAL, synthesise
from shrink.data.slices import listed_values


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Return the clips, in given splits; train and validation have no faults.

    `data.slices` may name the columns `condition` (`normal` or `faulty`) and `fault` (its kind).

    Raises:
        DataError: `data.target` is not the input, or a column is named that there is not.
    """
    if config.target == "label":
        raise DataError(
            "there are normal sounds alone to train on: nothing to tell apart",
            subject="data.source: machine",
            hint="set data.target: input, and name an autoencoder",
        )
    front_end = config.audio or AudioConfig()
    examples, sliced = {}, {}
    for number, split in enumerate(SPLIT_NAMES):
        rate, seconds = front_end.sample_rate, front_end.seconds
        sounds = synthesise(COUNTS[split], rate, seconds, number, faulty=split == "test")
        x = features(sounds.samples, front_end)
        examples[split] = ArrayExamples(x, np.zeros((len(x), 0), np.float32), np.arange(len(x)))
        conditions = tuple(NORMAL if fault == NORMAL else "faulty" for fault in sounds.faults)
        columns = {"condition": conditions, "fault": sounds.faults}
        sliced[split] = listed_values(config.slices or (), columns, Path(config.source))
    return Dataset(
        train=examples["train"],
        validation=examples["validation"],
        test=examples["test"],
        class_names=(),
        num_classes=None,
        given=frozenset({"validation", "test"}),
        slice_values=sliced,
    )
