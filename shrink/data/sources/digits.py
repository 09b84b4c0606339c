"""scikit-learn's handwritten digits: 1,797 images of 8 by 8, values 0 to 16, ten classes."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

import numpy as np

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.folders import ALL
from shrink.data.source_table import SourceTable


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Return the digits: x float32 (8, 8, 1) as stored, y int64."""
    # The file that `sklearn.datasets.load_digits` reads; its import takes 0.4 s of each stage.
    path = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = np.loadtxt(str(path), delimiter=",", dtype=np.float32)
    x, y = rows[:, :-1].reshape(-1, 8, 8, 1), rows[:, -1].astype(np.int64)
    names = tuple(map(str, range(10)))
    return SourceTable(Path("digits"), {ALL: np.arange(len(y))}, y, x, names).open(config, seed)
