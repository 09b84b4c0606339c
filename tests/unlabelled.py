"""Examples without labels: as much of a data set as calibration reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from shrink.data.examples import Examples


class UnlabelledExamples(Examples):
    """Arrays of examples, one for each input of a model.

    Args:
        arrays: (n, ...) each.
    """

    def __init__(self, *arrays: np.ndarray) -> None:
        self._arrays = arrays

    def __len__(self) -> int:
        return len(self._arrays[0])

    def arrays(self, indices: np.ndarray) -> tuple[Any, None]:
        """Return some examples, an array or one for each input, and no labels."""
        rows = tuple(array[indices] for array in self._arrays)
        return (rows if len(rows) > 1 else rows[0]), None
