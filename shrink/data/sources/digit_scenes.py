"""Scenes of scikit-learn's digits with the class of every pixel: for segmentation.

Images are uint8 (48, 48, 1); masks are uint8 (48, 48), 0 for background and d + 1 for the digit d.
The three splits are given, the same for every seed, and made of disjoint digits.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from shrink.data.arrays import ArrayExamples
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import SPLIT_NAMES
from shrink.data.scenes import COUNTS, compose, digit_pools

CLASSES = ("background", *map(str, range(10)))
"""Names of the classes of a pixel, by number."""


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Return the scenes; neither the seed nor the fractions of `config` decide anything."""
    held = load_digits()
    pools = digit_pools(len(held.target))
    examples = {}
    for number, split in enumerate(SPLIT_NAMES):
        scenes = compose(held.images, held.target, pools[split], COUNTS[split], number)
        examples[split] = ArrayExamples(scenes.images, scenes.masks, np.arange(COUNTS[split]))
    return Dataset(
        train=examples["train"],
        validation=examples["validation"],
        test=examples["test"],
        class_names=CLASSES,
        num_classes=None,
        given=frozenset({"validation", "test"}),
    )
