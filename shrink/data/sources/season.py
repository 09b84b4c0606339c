"""A synthesised seasonal series, cut into windows and split by time."""

from __future__ import annotations

import numpy as np

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.data.season import season
from shrink.data.series_config import SeriesConfig
from shrink.data.windows import Rows, splits_by_time, windows


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Return its windows; nothing is drawn.

    Raises:
        DataError: the windows are too long.
    """
    values = season()
    run = np.zeros(len(values), np.int64)
    split = splits_by_time(run, config.validation_split, config.test_split)
    settings = config.series or SeriesConfig()
    parts = windows(Rows(values, values, run), split, settings, config.source)
    return Dataset(
        train=parts["train"],
        validation=parts["validation"],
        test=parts["test"],
        class_names=(),
        num_classes=None,
    )
