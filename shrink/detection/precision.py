"""COCO's mean average precision of any resample of pictures, from what was right in each.

The arithmetic is that of pycocotools' `COCOeval.accumulate`, for many resamples at a time. Only
right detections are looked at: between two of them precision only falls. Where a picture has
several detections of one class and one score, copies of it are taken together, and not one after
the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shrink.base.types import Array
from shrink.detection.coco import ClassMatches

_RECALLS = np.linspace(0.0, 1.0, 101)


class MeanPrecision:
    """The mean average precision of resamples of pictures.

    Args:
        every: the matches of each class.
        overlaps: which of `shrink.detection.coco.OVERLAPS`.
    """

    def __init__(self, every: Sequence[ClassMatches], overlaps: slice = slice(None)) -> None:
        self._classes = [_ClassPrecision(one, overlaps) for one in every]

    def __call__(self, times: Array) -> Array:
        """Return it for each row of `times`, (b, n) to (b,); NaN without any box."""
        found = np.full((len(self._classes), len(times)), np.nan)
        for row, one in zip(found, self._classes, strict=True):
            row[:] = one.precision(times)
        defined = (~np.isnan(found)).sum(axis=0)
        total = np.nansum(found, axis=0)
        return np.where(defined > 0, total / np.maximum(defined, 1), np.nan)


class _ClassPrecision:
    """One class, overlap after overlap: right detections, and misses between them."""

    def __init__(self, one: ClassMatches, overlaps: slice) -> None:
        from scipy import sparse

        self._boxes = one.boxes.astype(np.float64)
        self._hits: list[Array] = []  # picture of each right detection, by overlap
        rows, pictures, done = [], [], 0
        for right, ignored in zip(one.right[overlaps], one.ignored[overlaps], strict=True):
            missed = np.flatnonzero(~right & ~ignored)
            segment = np.cumsum(right)[missed]  # how many are right before it
            count = int(np.count_nonzero(right))
            between = segment < count  # what follows the last right one changes nothing
            rows.append(segment[between] + done)
            pictures.append(one.picture[missed[between]])
            self._hits.append(one.picture[right])
            done += count
        places = (np.concatenate(rows), np.concatenate(pictures))
        ones = np.ones(len(places[0]))
        self._misses = sparse.csr_matrix((ones, places), shape=(done, len(one.boxes)))

    def precision(self, times: Array) -> Array:
        """Return the mean over overlaps of the average precision, (b,); NaN without a box."""
        to_find = times @ self._boxes
        misses = np.asarray((self._misses @ times.T).T)
        total, start = np.zeros(len(times)), 0
        for pictures in self._hits:
            own = misses[:, start : start + len(pictures)]
            start += len(pictures)
            total += _area(times[:, pictures], own, to_find)
        return np.where(to_find > 0, total / len(self._hits), np.nan)


def _area(hits: Array, misses: Array, to_find: Array) -> Array:
    """Return the mean precision at COCO's 101 recalls, (b,).

    Args:
        hits: how often each right detection is there, best first, (b, k).
        misses: how many wrong ones there are between it and the one before, (b, k).
        to_find: number of boxes, (b,).
    """
    if not hits.shape[1]:
        return np.zeros(len(hits))
    right, wrong = np.cumsum(hits, axis=1), np.cumsum(misses, axis=1)
    precision = np.where(hits > 0, right / np.maximum(right + wrong, 1), 0.0)
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    recall = right / np.maximum(to_find, 1)[:, None]
    reached = np.searchsorted(_RECALLS, recall.ravel(), side="right").reshape(recall.shape)
    # No recall at all is reached before the first right detection.
    reached = np.where(right > 0, reached, 0)
    return np.asarray((np.diff(reached, axis=1, prepend=0) * best).sum(axis=1) / len(_RECALLS))
