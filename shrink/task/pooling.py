"""Means over the elements that count, and each example's part in them, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shrink.base.errors import DataError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sums:
    """What examples hold of one metric of one output.

    Attributes:
        values: sum of the metric over an example's valid elements, (n,).
        valid: how many these are, (n,).
    """

    values: Array
    valid: Array


@dataclass(frozen=True)
class Pooled:
    """A metric of all examples.

    Attributes:
        value: the mean over the valid elements of all examples.
        scores: each example's part, (n,); their mean is `value`.
    """

    value: float
    scores: Array


def sum_up(values: Array, mask: Array | None) -> Sums:
    """Return each example's sum over its valid elements, and their number.

    Args:
        values: of each element, (n, ...).
        mask: bool, of the leading axes of `values`; None where every element counts.

    Raises:
        DataError: the mask has not the shape of the values.
    """
    valid = np.ones(values.shape)
    if mask is not None:
        if mask.shape != values.shape[: mask.ndim]:
            raise DataError(f"a mask of shape {mask.shape} does not suit {values.shape}")
        rest = (1,) * (values.ndim - mask.ndim)
        valid = np.broadcast_to(mask.reshape(mask.shape + rest), values.shape).astype(np.float64)
    count = len(values)
    # What is masked may be anything, also infinite.
    present = np.where(valid > 0, values, 0.0)
    return Sums(present.reshape(count, -1).sum(axis=1), valid.reshape(count, -1).sum(axis=1))


def pool(parts: Sequence[Sums]) -> Pooled:
    """Return the mean over all valid elements of all examples, as Keras' `evaluate` has it.

    Such a ratio of sums is no mean over examples. An example's score is its linearised part,
    `ratio + (sum - ratio * valid) / mean(valid)` (the infinitesimal jackknife): the mean of these
    is the ratio, and their standard error, also that of paired differences, the ratio's own.
    Where all examples have as many elements it is simply the example's own mean.

    Args:
        parts: of the examples, batch by batch.

    Raises:
        DataError: no element of any example counts.
    """
    values = np.concatenate([part.values for part in parts])
    valid = np.concatenate([part.valid for part in parts])
    total = valid.sum()
    if not total:
        raise DataError(
            "no element of any example counts: the model masks all of them",
            hint="shrink data check; look for padding in place of examples",
        )
    if np.all(valid == valid[0]):
        scores = values / valid[0]
        return Pooled(float(np.mean(scores)), scores)
    ratio = values.sum() / total
    scores = ratio + (values - ratio * valid) * (len(valid) / total)
    return Pooled(float(ratio), scores)
