"""Draws resamples of examples, and evaluates metrics on them: bootstrap and jackknife.

Resamples are drawn by the number of examples alone, so that those of two artifacts on the same
examples are paired. A resample is a vector of weights: how often each example was drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shrink.base.bootstrap import Resampled
from shrink.base.scores.rule import Blocks, Weighted, at_once
from shrink.base.types import Array

_SEED = 20_261_123
_MOST, _LEAST = 2_000, 400
"""Resamples of few and of many examples."""
_DRAWN = 40_000_000
"""Examples that are drawn at the most, over all resamples, while there are enough of these."""
_SUMMED = 100_000_000
"""Numbers that are summed at the most, over all resamples, as above."""
_BLOCKS = 1_000
"""Of the jackknife: with more examples, several of them are left out at a time."""
_BLOCKS_OF_SLICE = 250


def resample(
    metrics: Sequence[Weighted],
    examples: int,
    most: int = _MOST,
    most_blocks: int = _BLOCKS,
    slice_of: int | None = None,
) -> list[Resampled | None]:
    """Return what intervals of metrics are computed from; None for one without a value.

    Args:
        metrics: of the same examples.
        examples: how many these are.
        most: resamples at the most.
        most_blocks: of the jackknife, at the most.
        slice_of: how many examples there are in all, where these are one slice of them: it has as
            many resamples as all of them, so that all slices together cost what they do.
    """
    if slice_of is not None:
        most_blocks = min(most_blocks, _BLOCKS_OF_SLICE)
    ones = np.ones((1, examples))
    values = [float(metric.of(ones)[0]) for metric in metrics]
    counts = [min(_count(slice_of or examples, metric.columns), most) for metric in metrics]
    widest = max((one.sums.width for one in metrics if one.sums is not None), default=0)
    replicates = _evaluated(metrics, counts, draws(examples, max(counts, default=0), widest))
    blocks = min(examples, most_blocks)
    left_out = Blocks(np.arange(examples) % max(1, blocks), blocks)
    without = [metric.leaving_out(left_out) for metric in metrics]
    return [
        None
        if np.isnan(value)
        else Resampled(
            value,
            tuple(None if np.isnan(one) else one for one in own.tolist()),
            tuple(_influences(value, left).tolist()),
            f"{_SEED}, {count} of {examples}, numpy {'.'.join(np.__version__.split('.')[:2])}",
            why=metric.why,
            reach=max(1.0, blocks * metric.share),
            part=metric.part,
            right=metric.right,
            wrong=metric.wrong,
        )
        for metric, value, own, left, count in zip(
            metrics, values, replicates, without, counts, strict=True
        )
    ]


def _count(examples: int, columns: int) -> int:
    """Return how many resamples there are: fewer of many examples, or of many classes."""
    drawn = min(_DRAWN // max(examples, 1), _SUMMED // max(examples * columns, 1))
    return int(np.clip(drawn, _LEAST, _MOST))


def draws(examples: int, count: int, widest: int = 0) -> Iterator[Array]:
    """Yield how often each example is in each of `count` resamples, float64 (b, n) at a time.

    Args:
        examples: how many there are.
        count: of resamples.
        widest: numbers that are made of a resample, which bound how many come at a time, too.
    """
    random = np.random.default_rng([_SEED, examples])
    rows = at_once(max(examples, widest))
    for start in range(0, count, rows):
        here = min(rows, count - start)
        counts = np.empty((here, examples))
        for row in counts:
            drawn = random.integers(0, examples, examples, dtype=np.int32)
            row[:] = np.bincount(drawn, minlength=examples)
        yield counts


def _evaluated(
    metrics: Sequence[Weighted], counts: Sequence[int], weights: Iterator[Array]
) -> list[Array]:
    """Return each metric of its first rows of weights, as many as `counts` says."""
    found: list[list[Array]] = [[] for _ in metrics]
    done = 0
    for rows in weights:
        shared: dict[bytes, Array] = {}
        for metric, count, own in zip(metrics, counts, found, strict=True):
            if done >= count:
                continue
            if metric.sums is None or metric.of_sums is None:
                own.append(metric.of(rows[: count - done]))
                continue
            if metric.sums.key not in shared:
                shared[metric.sums.key] = metric.sums.of(rows)
            own.append(metric.of_sums(shared[metric.sums.key])[: count - done])
        done += len(rows)
    return [np.concatenate(own) for own in found]


def _influences(value: float, without: Array) -> Array:
    """Return the influence of each block, `value` on average, from the metric without it.

    A block that the metric has no value without counts as if it changed nothing: there are then
    too many resamples without a value for an interval.
    """
    missing = np.isnan(without)
    known = np.where(missing, value if missing.all() else np.nanmean(without), without)
    return value + (len(known) - 1) * (known.mean() - known)
