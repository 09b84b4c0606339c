"""Which examples train, validate and test: stratified by the seed, equal on every machine."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base.errors import DataError
from shrink.data.arrays import are_labels
from shrink.data.config import DataConfig
from shrink.data.folders import ALL, shown


@dataclass(frozen=True)
class Split:
    """Indices of the examples of each split, int64, ascending and disjoint."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def permutation(n: int, *entropy: int) -> np.ndarray:
    """Return a permutation of `range(n)`, int64 (n,), that `entropy` alone decides.

    It sorts the raw 64-bit stream of PCG64 (O'Neill 2014), which numpy promises never to
    change; the order that `Generator.permutation` gives may change between its versions.
    """
    raw = np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(n)
    return np.argsort(np.asarray(raw, np.uint64), kind="stable").astype(np.int64)


def split_examples(
    labels: np.ndarray | None,
    total: int,
    seed: int,
    *,
    validation: float = 0.0,
    test: float = 0.0,
) -> Split:
    """Divide examples into train, validation and test.

    Args:
        labels: int64 (total,) to stratify by, or None for a plain shuffled split.
        total: number of examples.
        seed: decides the split.
        validation: fraction of all examples; 0 for no such split.
        test: fraction of all examples; 0 for no such split.

    Splits hold `ceil(fraction * total)` examples. Each class with three examples or more is in
    every split, even where a split has to grow for that.

    Raises:
        DataError: too few examples for the splits.
    """
    order = permutation(total, seed)
    sizes = [math.ceil(round(fraction * total, 6)) for fraction in (test, validation)]
    if sum(sizes) >= total:
        raise DataError(
            f"{total} examples are too few for the split: test {sizes[0]}, "
            f"validation {sizes[1]}, none left to train on",
            hint="give more examples, or lower data.validation_split and data.test_split",
        )
    split_of = _strata(np.zeros(total, np.int64) if labels is None else labels, order, sizes)
    by_split = [np.flatnonzero(split_of == split).astype(np.int64) for split in range(3)]
    return Split(train=by_split[0], validation=by_split[2], test=by_split[1])


def divided_rows(
    given: Mapping[str, np.ndarray],
    targets: object,
    seed: int,
    config: DataConfig,
    path: Path,
) -> dict[str, np.ndarray]:
    """Return which rows train, validate and test, int64 (n,) each.

    Args:
        given: rows that the source gives as train, validation and test, or as `all`; what it does
            not give is taken from train or `all`, unless `data.test_split` is 1: see there.
        targets: of all rows; labels, int64 (rows,), are stratified by.
        seed: decides what is taken.
        config: holds the fractions.
        path: of the data, for messages.

    Raises:
        DataError: too few examples for the splits, or no split train.
    """
    if config.test_split == 1:
        tested = tested_split(given)
        none = np.zeros(0, np.int64)
        rest = {split: own for split, own in given.items() if split not in (tested, ALL)}
        return {"train": none, "validation": none, **rest, "test": given[tested]}
    main = ALL if ALL in given else "train"
    if main not in given:
        names = ", ".join(sorted(given))
        raise DataError(
            f"there is {names}, but no split train",
            subject=shown(path),
            hint="add a split train; to measure a model on such data use `shrink evaluate`, or "
            "data.test_split: 1 without stages",
        )
    try:
        split = split_examples(
            targets[given[main]] if are_labels(targets) else None,
            len(given[main]),
            seed,
            validation=0.0 if "validation" in given else config.validation_split,
            test=0.0 if "test" in given else config.test_split,
        )
    except DataError as error:
        raise DataError(error.message, subject=shown(path), hint=error.hint) from error
    return {
        "train": given[main][split.train],
        "validation": given.get("validation", given[main][split.validation]),
        "test": given.get("test", given[main][split.test]),
    }


def tested_split(given: Collection[str]) -> str:
    """Return which of the splits that a source gives is tested if `data.test_split` is 1."""
    return next(split for split in ("test", "validation", ALL, "train") if split in given)


def stratified_sample(labels: np.ndarray | None, total: int, count: int, seed: int) -> np.ndarray:
    """Return `count` of `total` indices, int64, shuffled, each class in proportion.

    Args:
        labels: int64 (total,), or None for a uniform sample.
        total: number of examples to choose from.
        count: number of examples to choose; all of them where there are fewer.
        seed: decides the choice.

    A class with few examples still gets one where `count` allows one of each.
    """
    order = permutation(total, seed)
    count = min(count, total)
    if labels is None:
        return order[:count]
    classes, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    minimum = np.full(len(classes), 1 if count >= len(classes) else 0)
    priority = permutation(len(classes), seed, 1)
    quota = apportion(counts * (count / total), count, minimum, counts, priority)
    rank = _rank_in_class(inverse, order)
    return order[rank[order] < quota[inverse[order]]]


def apportion(
    shares: np.ndarray,
    total: int,
    minimum: np.ndarray,
    maximum: np.ndarray,
    priority: np.ndarray,
) -> np.ndarray:
    """Round `shares` to whole numbers with sum `total` by the largest remainder (Hamilton).

    Args:
        shares: float (classes,), exact shares.
        total: the sum to reach, as far as minimum and maximum allow.
        minimum: int (classes,), fewest of each class.
        maximum: int (classes,), most of each class, at least `minimum`.
        priority: (classes,) ranks that decide between equal remainders.

    Returns:
        int64 (classes,).
    """
    rounded = np.clip(np.floor(shares + 1e-9), minimum, maximum).astype(np.int64)
    while (missing := total - int(rounded.sum())) != 0:
        step = 1 if missing > 0 else -1
        free = rounded < maximum if step > 0 else rounded > minimum
        if not free.any():
            break
        deficit = step * (shares - rounded)
        ranked = np.lexsort((priority, -np.round(deficit, 9)))
        chosen = ranked[free[ranked]][: abs(missing)]
        rounded[chosen] += step
    return rounded


def _strata(labels: np.ndarray, order: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Return the split of each example: 0 train, 1 test, 2 validation."""
    classes, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    priority = np.argsort(order[: len(classes)], kind="stable")
    rank = _rank_in_class(inverse, order)
    split_of = np.zeros(len(order), np.int64)
    taken = np.zeros(len(classes), np.int64)
    for split, size in enumerate(sizes, start=1):
        later = sum(1 for other in sizes[split:] if other)
        quota = _held_out(counts, taken, size, len(order), later, priority)
        position = rank - taken[inverse]
        split_of[(position >= 0) & (position < quota[inverse])] = split
        taken += quota
    return split_of


def _held_out(
    counts: np.ndarray,
    taken: np.ndarray,
    size: int,
    total: int,
    later: int,
    priority: np.ndarray,
) -> np.ndarray:
    """Return how many of each class a split of `size` gets; `later` splits follow it."""
    if size == 0:
        return np.zeros_like(counts)
    left = counts - taken
    minimum = (counts >= 3).astype(np.int64)
    shares = counts * (size / total)
    # Training keeps one of each class, and each split that follows keeps one too.
    maximum = np.maximum(left - 1 - later * minimum, minimum)
    quota = apportion(shares, size, minimum, np.maximum(maximum, 0), priority)
    if int(quota.sum()) < size:  # so many rare classes that training has to give up some
        most = np.where(counts < 3, left, quota)
        quota = apportion(shares, size, quota, most, priority)
    return quota


def _rank_in_class(inverse: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return each example's place among its own class in the shuffled order."""
    grouped = order[np.argsort(inverse[order], kind="stable")]
    counts = np.bincount(inverse)
    starts = np.cumsum(counts) - counts
    rank = np.empty(len(order), np.int64)
    rank[grouped] = np.arange(len(order)) - starts[inverse[grouped]]
    return rank
