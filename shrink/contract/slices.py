"""Scores of slices of the test examples, as measured and as reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from shrink.contract.codec import left_out
from shrink.contract.details import Limits, MetricDelta
from shrink.contract.record import record

BY_CLASS = "class"
"""The slicing by the true class."""
RECALL = "recall"
"""What is measured within a class: the share of its examples that are decided to be of it."""
FEWEST_EXAMPLES = 20
"""A slice with fewer examples is shown without a verdict."""


def slice_evidence(by: str, name: str) -> str:
    """Return under which name a step's scores hold what intervals of a slice are computed from."""
    return f"slice {by} = {name}"


def slice_text(by: str, name: str) -> str:
    """Return a slice for people: `class 8`, `location = barn`."""
    return f"{by} {name}" if by == BY_CLASS else f"{by} = {name}"


@record
class MeasuredSlice:
    """Some of the test examples.

    Attributes:
        name: of the slice.
        examples: how many.
        metrics: of these examples; None where it is not defined on them.
        undefined: by metric, why it is None.
    """

    name: str
    examples: int
    metrics: Mapping[str, float | None]
    undefined: Mapping[str, str] | None = left_out(None)


@record
class MeasuredSlicing:
    """The test examples, divided one way.

    Attributes:
        by: `class`, or a name of `data.slices`.
        metric: of which slices have intervals: the main metric; of classes, their recall, or of a
            detector's their mean average precision.
        slices: sorted by what divides them.
        unlisted: how many smaller slices there are beyond the most that are listed.
    """

    by: str
    metric: str
    slices: tuple[MeasuredSlice, ...]
    unlisted: int = left_out(0)


@record
class SliceTest:
    """Whether a slice differs from the baseline, judged together with the stage's other slices.

    Attributes:
        low, high: limits of the difference that hold for all slices of the stage together at 95 %
            (Bonferroni: paired, at 1 - 0.05 / m for each of m slices).
        verdict: `no proven difference` where these limits contain 0.
    """

    low: float | None
    high: float | None
    verdict: Literal["better", "worse", "no proven difference"]


@record
class Slice:
    """A slice of a stage's report.

    Attributes:
        name: of the slice.
        examples: how many of the test examples.
        metrics: as in `MeasuredSlice`; the first is the one that has the interval.
        interval: of that metric.
        delta, delta_previous: its difference to the baseline's and to the stage's before, paired
            over the same examples.
        test: of `delta`; None where there is none.
        reason: why there is no test, or no metric.
    """

    name: str
    examples: int
    metrics: Mapping[str, float | None]
    interval: Limits | None = None
    delta: MetricDelta | None = None
    delta_previous: MetricDelta | None = None
    test: SliceTest | None = None
    reason: str | None = left_out(None)


@record
class Slicing:
    """The test examples of a stage's report, divided one way.

    Attributes:
        by, metric, unlisted: as in `MeasuredSlicing`.
        average: the difference to the baseline of all examples: of a mean the mean over the slices
            by their examples; None where these are of several classes each.
        slices: sorted by what divides them.
    """

    by: str
    metric: str
    average: float | None = None
    slices: tuple[Slice, ...]
    unlisted: int = left_out(0)

    def slice(self, name: str) -> Slice | None:
        """Return the slice of this name, if it is there."""
        return next((one for one in self.slices if one.name == name), None)
