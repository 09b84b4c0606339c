"""No data: for commands that convert a model and measure all but metrics."""

from __future__ import annotations

import numpy as np

from shrink.base.errors import DataError
from shrink.data.config import WHY_NO_METRICS, DataConfig
from shrink.data.dataset import Dataset
from shrink.data.examples import Batch, Examples


class NoExamples(Examples):
    """A split without examples."""

    def __len__(self) -> int:
        return 0

    def arrays(self, indices: np.ndarray) -> Batch:
        """Raise `DataError`: there is nothing to read."""
        raise _no_data()


def no_examples() -> Dataset:
    """Return the data set of a stage that needs no examples."""
    nothing = NoExamples()
    return Dataset(nothing, nothing, nothing, class_names=(), num_classes=None)


def open_source(config: DataConfig, seed: int) -> Dataset:
    """Raise `DataError`: whoever opens data wants to see examples."""
    raise _no_data()


def _no_data() -> DataError:
    return DataError(
        WHY_NO_METRICS,
        subject="data.source",
        hint="name a source, a folder of images, or a file of arrays or records",
    )
