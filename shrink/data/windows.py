"""Time series cut into windows, split by time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from shrink.base.errors import DataError
from shrink.data.arrays import load_arrays
from shrink.data.examples import SPLIT_NAMES, Batch
from shrink.data.series_config import SeriesConfig


@dataclass(frozen=True)
class Rows:
    """The rows of one or several series, one behind the other in time.

    Attributes:
        x: float32 (rows, d), what is seen.
        y: float32 (rows, k), what is predicted.
        run: int64 (rows,), which series or part a row is of; a window crosses no border of them.
    """

    x: np.ndarray
    y: np.ndarray
    run: np.ndarray


class WindowExamples:
    """Windows as inputs (window, d), with the rows behind as targets (horizon,) or (horizon, k).

    Args:
        rows: the series.
        starts: int64 (n,), the first row of each window.
        config: window and horizon.
    """

    labels: np.ndarray | None = None

    def __init__(self, rows: Rows, starts: np.ndarray, config: SeriesConfig) -> None:
        self._rows, self._starts, self._config = rows, starts, config
        wide = rows.y.shape[1]
        target = (config.horizon,) if wide == 1 else (config.horizon, wide)
        self.input_spec = tf.TensorSpec((config.window, rows.x.shape[1]), tf.float32)
        self.target_spec = tf.TensorSpec(target, tf.float32)

    def __len__(self) -> int:
        return len(self._starts)

    def load(self, indices: tf.Tensor) -> Batch:
        """Return a batch as tensors."""
        return load_arrays(self.arrays, indices, (self.input_spec, self.target_spec))

    def arrays(self, indices: np.ndarray) -> Batch:
        """Return a batch as arrays."""
        config, first = self._config, self._starts[indices][:, None]
        x = self._rows.x[first + np.arange(config.window)]
        y = self._rows.y[first + config.window + np.arange(config.horizon)]
        return x, y.reshape(len(x), *self.target_spec.shape)

    def explain(self, indices: np.ndarray) -> DataError | None:
        """Return None: rows were checked when they were read."""
        return None


def splits_by_time(run: np.ndarray, validation: float, test: float) -> np.ndarray:
    """Return the split of each row: the last rows of every series test, those before validate.

    Args:
        run: int64 (rows,), which series a row is of; the rows of each stand together.
        validation: fraction of a series' rows, rounded up.
        test: likewise.

    Returns:
        Places in `SPLIT_NAMES`, int64 (rows,).
    """
    split = np.zeros(len(run), np.int64)
    for start, end in stretches(run):
        held = math.ceil(round(test * (end - start), 6))
        before = math.ceil(round(validation * (end - start), 6))
        split[max(start, end - held - before) : end] = SPLIT_NAMES.index("validation")
        split[max(start, end - held) : end] = SPLIT_NAMES.index("test")
    return split


def stretches(values: np.ndarray) -> list[tuple[int, int]]:
    """Return start and end of each stretch of equal values, (n,)."""
    borders = np.flatnonzero(np.diff(values)) + 1
    ends = [*borders.tolist(), len(values)]
    return list(zip([0, *borders.tolist()], ends, strict=True)) if len(values) else []


def windows(
    rows: Rows, split: np.ndarray, config: SeriesConfig, subject: str
) -> dict[str, WindowExamples]:
    """Return the windows of each split; none crosses the border of a series or of a split.

    Args:
        rows: the series.
        split: int64 (rows,), places in `SPLIT_NAMES`.
        config: window, horizon and stride.
        subject: the source, for messages.

    Raises:
        DataError: a split has no room for a window.
    """
    pieces = stretches(rows.run * len(SPLIT_NAMES) + split)
    starts = _starts(pieces, split, config)
    for number, name in enumerate(SPLIT_NAMES):
        if not len(starts[name]):
            longest = max((e - s for s, e in pieces if split[s] == number), default=0)
            raise DataError(
                f"the {name} split has at most {longest} rows in succession, and a window with "
                f"its horizon takes {config.rows}",
                subject=subject,
                hint="give a longer series, a larger part of it (data.validation_split, "
                "data.test_split), or a smaller data.series.window",
            )
    return {name: WindowExamples(rows, starts[name], config) for name in SPLIT_NAMES}


def _starts(
    pieces: Sequence[tuple[int, int]], split: np.ndarray, config: SeriesConfig
) -> Mapping[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {name: [] for name in SPLIT_NAMES}
    for start, end in pieces:
        first = np.arange(start, end - config.rows + 1, config.stride, dtype=np.int64)
        found[SPLIT_NAMES[split[start]]].append(first)
    return {name: np.concatenate([np.zeros(0, np.int64), *f]) for name, f in found.items()}
