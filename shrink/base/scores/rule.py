"""The interface of metrics that are not means: what they collect, and their weighted value."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from shrink.base.lazy import np
from shrink.base.scores.output import Output
from shrink.base.types import Array

_DENSE_FROM = 0.02
"""Share of numbers other than 0 from which on a dense product is the faster."""
CHUNK = 1_000_000
"""Weights at a time: 8 MB, beside which what a metric makes of them stays in the cache."""


@dataclass(frozen=True)
class Rows:
    """What is kept of examples.

    Attributes:
        example: number of the example of each row, int64 (m,).
        values: arrays of m rows each.
    """

    example: Array
    values: tuple[Array, ...]


def joined(parts: Sequence[Rows], counts: Sequence[int]) -> Rows:
    """Return the rows of all batches; examples are numbered from the first batch on.

    Args:
        parts: of the batches, in order.
        counts: number of examples of each.
    """
    starts = np.cumsum([0, *counts[:-1]])
    example = np.concatenate(
        [part.example + start for part, start in zip(parts, starts, strict=True)]
    )
    columns = zip(*(part.values for part in parts), strict=True)
    return Rows(example, tuple(np.concatenate(column) for column in columns))


OfWeights = Callable[[Array], Array]
"""Weights of examples, float64 (b, n), to the metric of each row of weights, float64 (b,).

NaN where it is not defined. Weights of 1 give the metric itself, whole numbers that of examples
which are there several times.
"""


def at_once(width: int) -> int:
    """Return how many rows of so many numbers are worked on at a time."""
    return max(1, CHUNK // max(width, 1))


@dataclass(frozen=True)
class Blocks:
    """Examples in blocks, of which a jackknife leaves out one at a time.

    Attributes:
        of: the block of each example, int64 (n,).
        count: how many there are.
    """

    of: Array
    count: int

    def chunks(self, width: int) -> Iterator[tuple[int, int]]:
        """Yield first block and end of some blocks at a time, for `width` numbers of each."""
        rows = at_once(width)
        for start in range(0, self.count, rows):
            yield start, min(start + rows, self.count)

    def weights(self) -> Iterator[Array]:
        """Yield the weights of examples without one block each, float64 (b, n) at a time."""
        for start, end in self.chunks(len(self.of)):
            yield (self.of[None, :] != np.arange(start, end)[:, None]).astype(np.float64)


class Sums:
    """Sums of values over weighted examples, in several columns.

    Args:
        example: of each value, int64 (m,).
        column: of each value, int64 (m,).
        value: float64 (m,); those of one example and column are added up.
        shape: number of examples, and of columns.
    """

    def __init__(self, example: Array, column: Array, value: Array, shape: tuple[int, int]) -> None:
        self._shape, self.width = shape, shape[1]
        self._example, self._column, self._value = example, column, value
        self._dense: Array | None = None
        if len(value) > _DENSE_FROM * shape[0] * shape[1]:
            place = np.bincount(example * shape[1] + column, value, shape[0] * shape[1])
            self._dense = place.reshape(shape)

    @classmethod
    def of_rows(cls, rows: Rows, columns: Array, examples: int) -> Sums:
        """Return the sums of the columns of some rows, (m, k)."""
        row, column = np.nonzero(columns)
        return cls(rows.example[row], column, columns[row, column], (examples, columns.shape[1]))

    @functools.cached_property
    def key(self) -> bytes:
        """The same for all sums of the same values, which are computed once."""
        parts = (np.array(self._shape), self._example, self._column, self._value)
        return hashlib.blake2b(b"".join(part.tobytes() for part in parts)).digest()

    def of(self, weights: Array) -> Array:
        """Return the sums under weights, (b, n) to (b, k)."""
        if self._dense is not None:
            return np.asarray(weights @ self._dense)
        sums = np.empty((len(weights), self._shape[1]))
        for own, row in zip(sums, weights, strict=True):
            own[:] = np.bincount(self._column, row[self._example] * self._value, len(own))
        return sums

    def leaving_out(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the sums without each block, (b, k), some blocks at a time."""
        width = self._shape[1]
        total = np.bincount(self._column, self._value, width)
        place = blocks.of[self._example]
        order = np.argsort(place, kind="stable")
        cell, value = place[order] * width + self._column[order], self._value[order]
        for start, end in blocks.chunks(width):
            first, last = np.searchsorted(cell, (start * width, end * width))
            own = cell[first:last] - start * width
            part = np.bincount(own, value[first:last], (end - start) * width)
            yield total - part.reshape(end - start, width)


@dataclass(frozen=True)
class Weighted:
    """A metric as a function of the examples' weights.

    Attributes:
        of: the metric.
        columns: how many numbers of each example are summed, which is what a resample costs.
        sums: what resamples are evaluated from; other metrics may share them, and blocks are left
            out of them by subtraction. None for a metric that is no function of sums.
        of_sums: the metric of these sums, (b, k) to (b,).
        share: the largest part of the metric that one example makes up; 0 where nobody knows.
        part, right, wrong: of a mean over classes, as in `shrink.base.bootstrap.Resampled`.
        why: why there is no interval, where there is none; else empty.
    """

    of: OfWeights
    columns: int = 1
    sums: Sums | None = None
    of_sums: Callable[[Array], Array] | None = None
    share: float = 0.0
    part: float = 0.0
    right: int = 0
    wrong: int = 0
    why: str = ""

    @classmethod
    def by(
        cls, sums: Sums, of_sums: Callable[[Array], Array], columns: int = 1, share: float = 0.0
    ) -> Weighted:
        """Return a metric that is a function of sums over examples, (b, k) to (b,)."""
        return cls(lambda weights: of_sums(sums.of(weights)), columns, sums, of_sums, share)

    def leaving_out(self, blocks: Blocks) -> Array:
        """Return it without each block, (count,)."""
        if self.sums is None or self.of_sums is None:
            return np.concatenate([self.of(weights) for weights in blocks.weights()])
        return np.concatenate([self.of_sums(rest) for rest in self.sums.leaving_out(blocks)])


@dataclass(frozen=True)
class Rule:
    """A metric of one output.

    Attributes:
        keep: what is kept of a batch.
        over: from what was kept of all n examples, the metric as a function of their weights.
        undefined: when it is not defined, in words.
        follows_nan: whether one NaN among the outputs leaves no value; else NaN is a wrong answer.
    """

    keep: Callable[[Output], Rows]
    over: Callable[[Rows, int], Weighted]
    undefined: str
    follows_nan: bool = False


class MakeRule(Protocol):
    """Makes the rule of a metric."""

    def __call__(self, arguments: dict[str, object]) -> Rule:
        """Return the rule of a metric with these arguments, by parameter."""


def divided(numerator: Array, denominator: Array) -> Array:
    """Return a quotient, NaN where the denominator is 0."""
    positive = np.where(denominator == 0, 1.0, denominator)
    return np.where(denominator == 0, np.nan, numerator / positive)


def mean_where(values: Array, counts: Array) -> Array:
    """Return the mean of each row, (b, c) to (b,), of the columns that count; NaN without one.

    Args:
        values: anything where they do not count.
        counts: bool (b, c).
    """
    return divided(np.where(counts, values, 0.0).sum(axis=1), counts.sum(axis=1))


def largest_share(parts: Array) -> float:
    """Return the largest part that one example makes up of a mean over classes that occur.

    Args:
        parts: what each example adds to each class's denominator, (n, c).
    """
    totals = parts.sum(axis=0)
    occurs = totals > 0
    shares = parts.max(axis=0)[occurs] / totals[occurs]
    return float(shares.max() / len(shares)) if len(shares) else 0.0


def decided_class(outputs: Array) -> Array:
    """Return 1 for the class with the highest output, the first of equal ones, and 0 else, (m, k).

    An element with a NaN is of no class.
    """
    decided = np.zeros(outputs.shape)
    if outputs.size:
        np.put_along_axis(decided, outputs.argmax(axis=-1)[..., None], 1.0, axis=-1)
        decided[np.isnan(outputs).any(axis=-1)] = 0.0
    return decided
