"""User metrics of all outputs and targets at once, and their bootstrap."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from shrink.base.bootstrap import Resampled
from shrink.base.scores.rule import Weighted
from shrink.base.types import Array
from shrink.base.user_metric import UserMetric
from shrink.model.user_modules import blaming, function_of
from shrink.task.metrics.resample import resample

_RESAMPLES, _BLOCKS = 400, 200
"""Fewer than of shrink's own metrics: each is a call. All stages have the same ones."""
MOST_SECONDS = 20.0
"""For all of these calls; a function that would take longer has no interval."""
MOST_IN_SLICES = 60.0
"""Seconds for these calls in all slices of an artifact together."""

Arrays: TypeAlias = "Array | tuple[Array, ...]"
"""Of one output, or one for each of several."""


class Collected:
    """Outputs and targets of all examples, batch by batch."""

    def __init__(self) -> None:
        self._outputs: list[list[Array]] = []
        self._targets: list[list[Array]] = []
        self._whole: tuple[list[Array], list[Array]] | None = None

    def add(
        self, outputs: Sequence[Array], targets: Sequence[Array], masks: Sequence[Array | None]
    ) -> None:
        """Keep a batch; arrays are by output. What a mask leaves out is NaN from here on."""
        pairs = zip(outputs, masks, strict=True)
        self._outputs.append([_masked(np.asarray(o, np.float64), mask) for o, mask in pairs])
        self._targets.append([np.asarray(target) for target in targets])

    def some(self, chosen: Array) -> Collected:
        """Return some of the examples, by their places, int64 (m,)."""
        part = Collected()
        if self._outputs:
            outputs, targets = _joined(self._outputs), _joined(self._targets)
            part._whole = [one[chosen] for one in outputs], [one[chosen] for one in targets]
        return part

    def metric(self, metric: UserMetric, groups: Array | None = None) -> OfExamples:
        """Return a user's function as one of the numbers of these examples.

        Args:
            metric: the function.
            groups: the slices of each example, as `OfExamples` has them.
        """
        if self._whole is None:
            self._whole = _joined(self._outputs), _joined(self._targets)
        return OfExamples(metric, *self._whole, groups)


class OfExamples:
    """A user's metric of some of the examples.

    Args:
        metric: names the function, whose code runs here.
        outputs: float64 (n, ...) for each output of the model.
        targets: (n, ...) for each output, as the data has them.
        groups: the names of each example's slices, (n,), or (n, slicings) where there are several
            slicings; None where the data has none.

    Raises:
        ModelError: the file cannot be imported, or has no such function.
    """

    def __init__(
        self,
        metric: UserMetric,
        outputs: Sequence[Array],
        targets: Sequence[Array],
        groups: Array | None = None,
    ) -> None:
        self._metric = metric
        self._function = function_of(Path(metric.file), metric.function)
        self._outputs, self._targets, self._groups = outputs, targets, groups

    @property
    def examples(self) -> int:
        """How many there are."""
        return len(self._outputs[0])

    def __call__(self, chosen: Array | None = None) -> float:
        """Return the metric of all examples, or of those of these numbers, int64 (m,).

        Raises:
            StageError: the function raises, or returns no number.
        """
        groups = self._groups
        if chosen is not None and groups is not None:
            groups = groups[chosen]
        outputs, targets = _taken(self._outputs, chosen), _taken(self._targets, chosen)
        name, file = self._metric.function, self._metric.file
        hint = (
            "it takes (outputs, targets, groups) and returns one number, NaN if it is not defined"
        )
        with blaming(f"the metric {name}: ", file, hint):
            array = np.asarray(self._function(outputs, targets, groups))
            if array.size != 1 or array.dtype.kind not in "biuf":
                raise TypeError(f"it returned {array.dtype.name} of shape {array.shape}, no number")
            return float(array.reshape(()))


def resampled(metric: OfExamples, most_seconds: float = MOST_SECONDS) -> Resampled | None:
    """Return what an interval is computed from; None where the metric has no value.

    A function that takes too long has a value without an interval, and says so.

    Args:
        metric: of the examples.
        most_seconds: that all calls may take.
    """
    begun = time.perf_counter()
    value = metric()
    seconds = (time.perf_counter() - begun) * (_RESAMPLES + _BLOCKS)
    if math.isnan(value):
        return None
    if seconds > most_seconds:
        calls = f"{_RESAMPLES + _BLOCKS} calls of the function would take {seconds:.0f} s"
        return Resampled(value, (), (), "", f"no interval: {calls}")
    (found,) = resample([Weighted(_of_weights(metric))], metric.examples, _RESAMPLES, _BLOCKS)
    return found


def _of_weights(metric: OfExamples) -> Callable[[Array], Array]:
    """Return the metric of rows of weights, (b, n) to (b,): an example is there that many times."""

    def of_weights(weights: Array) -> Array:
        numbers = np.arange(weights.shape[1])
        return np.array([metric(np.repeat(numbers, row.astype(np.int64))) for row in weights])

    return of_weights


def _masked(outputs: Array, mask: Array | None) -> Array:
    if mask is None:
        return outputs
    return np.where(mask.reshape(mask.shape + (1,) * (outputs.ndim - mask.ndim)), outputs, np.nan)


def _joined(batches: Sequence[Sequence[Array]]) -> list[Array]:
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]


def _taken(arrays: Sequence[Array], chosen: Array | None) -> Arrays:
    parts = tuple(arrays) if chosen is None else tuple(array[chosen] for array in arrays)
    return parts[0] if len(parts) == 1 else parts
