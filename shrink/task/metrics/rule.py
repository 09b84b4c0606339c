"""What a metric that is no mean over examples has to say: what it keeps, and its weighted value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from scipy import sparse

from shrink.base.errors import DataError, RecipeError, hint_for
from shrink.base.losses import kind_of_loss, takes_logits
from shrink.base.types import Array
from shrink.task.accuracy import class_numbers, of_shape

Activation = Literal["none", "sigmoid", "softmax"]

_DENSE_FROM = 0.2
"""Share of numbers other than 0 from which on a dense product is the faster."""
CHUNK = 1_000_000
"""Weights at a time: 8 MB, beside which what a metric makes of them stays in the cache."""


@dataclass(frozen=True)
class Seen:
    """What one output gave for some examples, and what it should have given.

    Attributes:
        outputs: float64 (n, ..., k), dequantized; (n,) and (n, 1) for a single number.
        targets: labels (n, ...) or (n, ..., 1), or the outputs' shape for one-hot labels, several
            labels and real targets.
        mask: bool, of the leading axes of the outputs; None where every element counts.
        from_logits: whether the outputs of a classifier are logits, not probabilities.
        several_labels: whether each of the k outputs is a label of its own.
        classes: names of the classes by index; empty where there are none.
        groups: the slices of each example by name, (n,) or (n, slicings); None where the data has
            none.
        activation: what the loss applies to the outputs before it compares them with targets.
    """

    outputs: Array
    targets: Array
    mask: Array | None = None
    from_logits: bool = False
    several_labels: bool = False
    classes: Sequence[str] = ()
    groups: Array | None = None
    activation: Activation = "none"

    @property
    def count(self) -> int:
        """Number of examples."""
        return len(self.outputs)

    @property
    def example(self) -> Array:
        """The example of each element that counts, int64 (m,)."""
        elements = self.valid.shape[1]
        return np.repeat(np.arange(self.count), elements)[self.valid.ravel()]

    @property
    def valid(self) -> Array:
        """Which elements count, bool (n, elements): positions of the outputs but the last axis."""
        shape = self.outputs.shape[:-1]
        if self.mask is None:
            return np.ones((self.count, int(np.prod(shape[1:]))), bool)
        if self.mask.shape != shape[: self.mask.ndim]:
            raise DataError(f"a mask of shape {self.mask.shape} does not suit {shape}")
        rest = (1,) * (len(shape) - self.mask.ndim)
        full = np.broadcast_to(self.mask.reshape(self.mask.shape + rest), shape)
        return np.asarray(full.reshape(self.count, -1), bool)

    def elements(self) -> Array:
        """Return the outputs of the elements that count, (m, k)."""
        rows = self.outputs.reshape(self.count, -1, self.outputs.shape[-1])
        return rows[self.valid]

    def element_targets(self) -> Array:
        """Return the targets of the elements that count, of the outputs' shape, (m, k)."""
        aligned = of_shape(self.targets, self.outputs.shape).astype(np.float64)
        return aligned.reshape(self.count, -1, self.outputs.shape[-1])[self.valid]

    def element_classes(self) -> Array:
        """Return the class number of each element that counts, int64 (m,)."""
        numbers = class_numbers(self.outputs, self.targets)
        return numbers.reshape(self.count, -1)[self.valid]

    @property
    def is_single(self) -> bool:
        """Whether there is one number for two classes."""
        return self.outputs.shape[-1] == 1

    def class_index(self, name: object, count: int) -> int:
        """Return the number of a class that a recipe names.

        Raises:
            RecipeError: there is no such class.
        """
        text, names = str(name), list(self.classes)
        if text in names:
            return names.index(text)
        if text.isdigit() and int(text) < count:
            return int(text)
        raise RecipeError(
            f"there is no class {text!r} among the {count} of the model",
            subject="task.metrics",
            hint=hint_for(text, names) if names else f"classes are 0 to {count - 1}",
        )


def seen(
    outputs: Array,
    targets: Array,
    *,
    mask: Array | None = None,
    from_logits: bool = False,
    loss: str = "",
    classes: Sequence[str] = (),
    groups: Array | None = None,
) -> Seen:
    """Return what an output gave, in float64 and with an axis for its numbers.

    Args:
        outputs, targets, mask, from_logits, classes, groups: see `Seen`.
        loss: of the output, which says whether its numbers are labels of their own, and what turns
            logits into probabilities.

    Raises:
        DataError: other numbers of outputs and targets.
    """
    outputs = np.asarray(outputs, np.float64)
    if outputs.ndim == 1:
        outputs = outputs[:, None]
    targets = np.asarray(targets)
    if len(targets) != len(outputs):
        raise DataError(f"{len(outputs)} outputs for {len(targets)} targets")
    several = bool(loss) and kind_of_loss(loss) == "labels" and outputs.shape[-1] > 1
    activation: Activation = "none"
    if loss and from_logits and takes_logits(loss):
        activation = "softmax" if kind_of_loss(loss) == "classes" else "sigmoid"
    return Seen(outputs, targets, mask, from_logits, several, classes, groups, activation)


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

    @property
    def members(self) -> sparse.csr_matrix:
        """1 where an example is in a block, (count, n)."""
        own = np.arange(len(self.of))
        return sparse.csr_matrix((np.ones(len(own)), (self.of, own)), (self.count, len(own)))

    def weights(self) -> Iterator[Array]:
        """Yield the weights of examples without one block each, float64 (b, n) at a time."""
        rows = at_once(len(self.of))
        for start in range(0, self.count, rows):
            left_out = np.arange(start, min(start + rows, self.count))
            yield (self.of[None, :] != left_out[:, None]).astype(np.float64)


class Linear(Protocol):
    """Sums under weights of examples, which several metrics may be functions of."""

    def of(self, weights: Array) -> Any:
        """Return them, for (b, n) weights."""

    def leaving_out(self, blocks: Blocks) -> Iterator[Any]:
        """Yield them without each block, some blocks at a time."""

    def is_like(self, other: Linear) -> bool:
        """Return whether another one gives the same."""


@dataclass(frozen=True)
class OfSums:
    """A metric that is a function of sums over examples.

    Attributes:
        sums: of the examples.
        metric: of what `sums` gives, (b,).
    """

    sums: Linear
    metric: Callable[[Any], Array]

    def of(self, weights: Array) -> Array:
        """Return it under weights, (b, n) to (b,)."""
        return self.metric(self.sums.of(weights))

    def leaving_out(self, blocks: Blocks) -> Array:
        """Return it without each block, (count,)."""
        return np.concatenate([self.metric(rest) for rest in self.sums.leaving_out(blocks)])


@dataclass(frozen=True)
class Weighted:
    """A metric as a function of the examples' weights.

    Attributes:
        exact: the metric.
        quick: in its place for resamples, where that is much faster; None where it is the same.
        columns: how many numbers of each example are summed, which is what a resample costs.
        of_sums: the same as what resamples are evaluated by, where that is a function of sums:
            other metrics may share these, and blocks are left out of them by subtraction.
    """

    exact: OfWeights
    quick: OfWeights | None = None
    columns: int = 1
    of_sums: OfSums | None = None


@dataclass(frozen=True)
class Rule:
    """A metric of one output.

    Attributes:
        keep: what is kept of a batch.
        over: from what was kept of all n examples, the metric as a function of their weights.
        undefined: when it is not defined, in words.
        follows_nan: whether one NaN among the outputs leaves no value; else NaN is a wrong answer.
    """

    keep: Callable[[Seen], Rows]
    over: Callable[[Rows, int], Weighted]
    undefined: str
    follows_nan: bool = False


class MakeRule(Protocol):
    """Makes the rule of a metric."""

    def __call__(self, arguments: dict[str, object]) -> Rule:
        """Return the rule of a metric with these arguments, by parameter."""


class Sums:
    """Weighted sums of columns over examples.

    Args:
        rows: says of which example each row is.
        columns: float64 (m, k).
        examples: n.
    """

    def __init__(self, rows: Rows, columns: Array, examples: int) -> None:
        own = np.arange(len(rows.example))
        totals = sparse.csr_matrix(columns)
        if len(own) != examples or not np.array_equal(rows.example, own):
            shape = (examples, len(own))
            places = sparse.csr_matrix((np.ones(len(own)), (rows.example, own)), shape=shape)
            totals = places @ totals
        self._is_dense = totals.nnz > _DENSE_FROM * max(1, np.prod(totals.shape))
        self._totals = totals.toarray() if self._is_dense else totals
        self._flipped = None if self._is_dense else totals.T.tocsr()

    def of(self, weights: Array) -> Array:
        """Return the sums under weights, (b, n) to (b, k)."""
        if self._is_dense:
            return np.asarray(weights @ self._totals)
        return np.asarray((self._flipped @ weights.T).T)

    def is_like(self, other: Linear) -> bool:
        """Return whether other sums are of the same numbers."""
        if not isinstance(other, Sums) or self._is_dense != other._is_dense:
            return False
        if self._is_dense:
            return np.array_equal(self._totals, other._totals)
        return same_matrix(self._totals, other._totals)

    def leaving_out(self, blocks: Blocks) -> Iterator[Array]:
        """Yield the sums without each block, (b, k), some blocks at a time."""
        product = blocks.members @ self._totals
        total = np.asarray(product.sum(axis=0)).reshape(1, -1)
        rows = at_once(total.shape[1])
        for start in range(0, blocks.count, rows):
            part = product[start : start + rows]
            yield total - (part if self._is_dense else part.toarray())


def same_matrix(one: sparse.csr_matrix, other: sparse.csr_matrix) -> bool:
    """Return whether two matrices are stored alike."""
    parts = ((one.indptr, other.indptr), (one.indices, other.indices), (one.data, other.data))
    return one.shape == other.shape and all(np.array_equal(a, b) for a, b in parts)


def weighted_by(sums: Sums, metric: Callable[[Array], Array]) -> Weighted:
    """Return a metric that is a function of sums over examples, (b, k) to (b,)."""
    found = OfSums(sums, metric)
    return Weighted(found.of, of_sums=found)


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


def normalised(outputs: Array) -> Array:
    """Return probabilities that add up to 1, (..., k); those of an integer softmax need not."""
    total = outputs.sum(axis=-1, keepdims=True)
    return np.asarray(outputs / np.where(total == 0, 1.0, total))


def decided_class(outputs: Array) -> Array:
    """Return 1 for the class with the highest output, the first of equal ones, and 0 else, (m, k).

    An element with a NaN is of no class.
    """
    decided = np.zeros(outputs.shape)
    if outputs.size:
        np.put_along_axis(decided, outputs.argmax(axis=-1)[..., None], 1.0, axis=-1)
        decided[np.isnan(outputs).any(axis=-1)] = 0.0
    return decided
