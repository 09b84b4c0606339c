"""scikit-learn's handwritten digits: 1,797 images of 8 by 8, values 0 to 16, ten classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.folders import ALL
from shrink.data.source_table import SourceTable


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Return the digits: x float32 (8, 8, 1) as stored, y int64."""
    digits = load_digits()
    x = digits.images.astype(np.float32)[..., None]
    y = digits.target.astype(np.int64)
    names = tuple(map(str, digits.target_names))
    return SourceTable(Path("digits"), {ALL: np.arange(len(y))}, y, x, names).open(config, seed)
