"""Time series cut into windows, split by time."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shrink.base.errors import DataError
from shrink.data.arrays import LazyRows
from shrink.data.examples import SPLIT_NAMES
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
    rows: Rows,
    split: np.ndarray,
    config: SeriesConfig,
    subject: str,
    needed: Collection[str] = SPLIT_NAMES,
) -> tuple[LazyRows, LazyRows, dict[str, np.ndarray]]:
    """Return windows (window, d), the rows behind as targets, and the windows of each split.

    Targets are (horizon,) or (horizon, k). No window crosses the border of a series or of a split.

    Args:
        rows: the series.
        split: int64 (rows,), places in `SPLIT_NAMES`.
        config: window, horizon and stride.
        subject: the source, for messages.
        needed: the splits that must have a window.

    Raises:
        DataError: a split has no room for a window.
    """
    pieces = stretches(rows.run * len(SPLIT_NAMES) + split)
    starts = _starts(pieces, split, config)
    for number, name in enumerate(SPLIT_NAMES):
        if name in needed and not len(starts[name]):
            longest = max((e - s for s, e in pieces if split[s] == number), default=0)
            raise DataError(
                f"the {name} split has at most {longest} rows in succession, and a window with "
                f"its horizon takes {config.rows}",
                subject=subject,
                hint="give a longer series, a larger part of it (data.validation_split, "
                "data.test_split), or a smaller data.series.window",
            )
    first = np.concatenate([starts[name] for name in SPLIT_NAMES])[:, None]
    wide = rows.y.shape[1]
    target = (config.horizon,) if wide == 1 else (config.horizon, wide)

    def inputs(chosen: np.ndarray) -> np.ndarray:
        return np.asarray(rows.x[first[chosen] + np.arange(config.window)])

    def targets(chosen: np.ndarray) -> np.ndarray:
        y = rows.y[first[chosen] + config.window + np.arange(config.horizon)]
        return np.asarray(y.reshape(len(chosen), *target))

    count, width = len(first), rows.x.shape[1]
    x = LazyRows(inputs, (count, config.window, width), np.float32, is_decoded=True)
    y = LazyRows(targets, (count, *target), np.float32)
    ends = np.cumsum([len(starts[name]) for name in SPLIT_NAMES])
    own = np.split(np.arange(count), ends[:-1])
    return x, y, dict(zip(SPLIT_NAMES, own, strict=True))


def _starts(
    pieces: Sequence[tuple[int, int]], split: np.ndarray, config: SeriesConfig
) -> Mapping[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {name: [] for name in SPLIT_NAMES}
    for start, end in pieces:
        first = np.arange(start, end - config.rows + 1, config.stride, dtype=np.int64)
        found[SPLIT_NAMES[split[start]]].append(first)
    return {name: np.concatenate([np.zeros(0, np.int64), *f]) for name, f in found.items()}
