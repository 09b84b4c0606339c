"""Synthesised tones and noise, as the audio front end of `data.audio` shows them."""

from __future__ import annotations

import numpy as np

from shrink.data.arrays import ArrayExamples
from shrink.data.audio_config import AudioConfig
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES
from shrink.data.front_end import features
from shrink.data.tones import CLASSES, COUNTS, synthesise


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Return the clips; the splits are given, and the same for every seed."""
    front_end = config.audio or AudioConfig()
    examples = {}
    for number, split in enumerate(SPLIT_NAMES):
        clips = synthesise(COUNTS[split], front_end.sample_rate, front_end.seconds, number)
        x = features(clips.samples, front_end)
        examples[split] = ArrayExamples(x, clips.labels, np.arange(len(x)))
    return Dataset(
        train=examples["train"],
        validation=examples["validation"],
        test=examples["test"],
        class_names=CLASSES,
        num_classes=len(CLASSES),
        given=frozenset({"validation", "test"}),
    )
