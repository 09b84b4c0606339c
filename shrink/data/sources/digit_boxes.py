"""Scenes of scikit-learn's digits with a box around each: 96 by 96 pixels, gray, ten classes.

Each split has digits of its own, so that no digit of a test scene was ever trained on.
"""

from __future__ import annotations

import math

import numpy as np
from sklearn.datasets import load_digits

from shrink.base.types import Array
from shrink.data.arrays import ArrayExamples
from shrink.data.box_scenes import compose
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.splits import split_examples

SCENES, SIZE = 1_500, 96
"""Scenes of all splits together, and their height and width."""


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Return the scenes: x uint8 (96, 96, 1), y boxes float32 (6, 7), see `shrink.data.boxes`."""
    digits = load_digits()
    labels = digits.target.astype(np.int64)
    split = split_examples(
        labels, len(labels), seed, validation=config.validation_split, test=config.test_split
    )

    def scenes(own: Array, share: float, number: int) -> ArrayExamples:
        count = math.ceil(round(share * SCENES, 6))
        made = compose(digits.images[own], labels[own], count, SIZE, (seed, number))
        return ArrayExamples(made.pictures, made.boxes, np.arange(count))

    rest = 1 - config.validation_split - config.test_split
    return Dataset(
        train=scenes(split.train, rest, 0),
        validation=scenes(split.validation, config.validation_split, 1),
        test=scenes(split.test, config.test_split, 2),
        class_names=tuple(str(name) for name in digits.target_names),
        num_classes=None,
        has_boxes=True,
    )
