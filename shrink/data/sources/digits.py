"""scikit-learn's handwritten digits: 1,797 images of 8 by 8, values 0 to 16, ten classes."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from shrink.data.arrays import ArrayExamples
from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.splits import split_examples


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Return the digits: x float32 (8, 8, 1) as stored, y int64."""
    digits = load_digits()
    x = digits.images.astype(np.float32)[..., None]
    y = digits.target.astype(np.int64)
    split = split_examples(
        y, len(y), seed, validation=config.validation_split, test=config.test_split
    )
    return Dataset(
        train=ArrayExamples(x, y, split.train),
        validation=ArrayExamples(x, y, split.validation),
        test=ArrayExamples(x, y, split.test),
        class_names=tuple(str(name) for name in digits.target_names),
        num_classes=len(digits.target_names),
    )
