"""What became of each slice of the test examples: its difference, and whether chance explains it.

All slices of a stage that have enough examples are tested against the baseline at once: p values
are adjusted by Holm's procedure, and limits hold for all of them together (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shrink.base.errors import InternalError
from shrink.base.figures import metric_figure
from shrink.base.intervals import Interval, is_binary
from shrink.base.resampled import Resampled
from shrink.base.significance import LEVEL, holm, paired_p, resampled_test
from shrink.contract.details import Limits, MetricDelta, metric_delta
from shrink.contract.report import Stage
from shrink.contract.result import Evidence, Scores, StageOutcome
from shrink.contract.slices import (
    BY_CLASS,
    FEWEST_EXAMPLES,
    RECALL,
    MeasuredSlice,
    MeasuredSlicing,
    Slice,
    SliceTest,
    Slicing,
    slice_evidence,
)
from shrink.report.deltas import Verdict, exact_difference, own_interval, score_interval

TestName = Literal["mcnemar", "student", "bootstrap"]


def reported_slices(
    stage: Stage,
    outcome: StageOutcome,
    baseline: StageOutcome | None,
    previous: StageOutcome | None,
) -> tuple[Slicing, ...]:
    """Return the slices of a complete stage with their differences and tests.

    Args:
        stage: with the differences of its metrics.
        outcome: of the stage.
        baseline: the stage that all are compared with; None where it has no figures.
        previous: the stage that this one started from; None where there is none.
    """
    pairs = [_Pair(outcome, baseline, one.by) for one in outcome.result.slices]
    before = [_Pair(outcome, previous, one.by) for one in outcome.result.slices]
    found = []
    for measured, to_base, to_previous in zip(outcome.result.slices, pairs, before, strict=True):
        rows = tuple(_row(measured, one, to_base, to_previous) for one in measured.slices)
        found.append(
            Slicing(
                by=measured.by,
                metric=measured.metric,
                average=_average(stage, measured, rows),
                slices=rows,
                unlisted=measured.unlisted,
            )
        )
    is_itself = baseline is None or baseline.name == outcome.name
    return tuple(found) if is_itself else _tested(found, pairs)


@dataclass(frozen=True)
class _Pair:
    """One slicing of a stage and of another that it is compared with."""

    outcome: StageOutcome
    other: StageOutcome | None
    by: str

    @property
    def is_itself(self) -> bool:
        """Whether a stage is compared with itself, as the baseline is."""
        return self.other is not None and self.other.name == self.outcome.name

    def value(self, name: str, metric: str) -> float | None:
        """Return what the other stage has."""
        slicings = self.other.result.slices if self.other else ()
        for slicing in slicings:
            if slicing.by == self.by and slicing.metric == metric:
                for one in slicing.slices:
                    if one.name == name:
                        return one.metrics.get(metric)
        return None

    def evidence(self, name: str) -> tuple[Evidence | None, Evidence | None]:
        """Return what intervals are computed from, before and after."""
        key = slice_evidence(self.by, name)
        scores: Scores = self.other.scores if self.other else {}
        return scores.get(key), self.outcome.scores.get(key)

    def delta(self, name: str, value: float | None, metric: str) -> MetricDelta | None:
        """Return the difference of a slice with its interval."""
        base = self.value(name, metric)
        if value is None or base is None:
            return None
        if self.is_itself:
            return MetricDelta(value=0.0, low=0.0, high=0.0)
        interval = score_interval(*self.evidence(name), bounds=metric_figure(metric).bounds)
        limits = interval or Interval(value, None, None)
        change = exact_difference(value, base)
        return MetricDelta(value=change, low=limits.low, high=limits.high, note=limits.note)


def _row(slicing: MeasuredSlicing, one: MeasuredSlice, base: _Pair, previous: _Pair) -> Slice:
    metric = slicing.metric
    value = one.metrics.get(metric)
    evidence = base.outcome.scores.get(slice_evidence(slicing.by, one.name))
    bounds = metric_figure(metric).bounds
    interval = None if not evidence else own_interval(evidence, bounds)
    return Slice(
        name=one.name,
        examples=one.examples,
        metrics=one.metrics,
        interval=None
        if interval is None
        else Limits(low=interval.low, high=interval.high, note=interval.note),
        delta=base.delta(one.name, value, metric),
        delta_previous=previous.delta(one.name, value, metric),
        reason=_reason(one, metric),
    )


def _reason(one: MeasuredSlice, metric: str) -> str | None:
    """Return why a slice has no metric or gets no verdict."""
    if one.metrics.get(metric) is None:
        return (
            f"{metric} is not defined: {(one.undefined or {}).get(metric, 'no reason was given')}"
        )
    if one.examples < FEWEST_EXAMPLES:
        return f"fewer than {FEWEST_EXAMPLES} examples: no verdict"
    return None


def _average(stage: Stage, slicing: MeasuredSlicing, rows: Sequence[Slice]) -> float | None:
    """Return the difference of all examples: of recalls within classes, that of the accuracy.

    The mean average precision of all boxes is the mean of that of the classes. None where examples
    hold elements of several classes, which count by their number, not told.
    """
    if slicing.by != BY_CLASS or slicing.metric != RECALL:
        whole = metric_delta(stage.delta, slicing.metric)
        return None if whole is None else whole.value
    if sum(row.examples for row in rows) != stage.examples:
        return None
    known = [(row.examples, row.delta.value) for row in rows if row.delta is not None]
    total = sum(examples for examples, _ in known)
    return sum(examples * value for examples, value in known) / total if total else None


def _tested(slicings: Sequence[Slicing], pairs: Sequence[_Pair]) -> tuple[Slicing, ...]:
    """Return slicings with the tests of those of their slices that have enough examples."""
    places = [
        (i, j)
        for i, slicing in enumerate(slicings)
        for j, row in enumerate(slicing.slices)
        if row.reason is None and _has_limits(row.delta)
    ]
    found = [_p(slicings[i], slicings[i].slices[j], pairs[i], len(places)) for i, j in places]
    tests: dict[tuple[int, int], SliceTest] = {}
    adjusted = holm([p for _, p in found])
    for (i, j), (test, p), level in zip(places, found, adjusted, strict=True):
        slicing, row = slicings[i], slicings[i].slices[j]
        bounds = metric_figure(slicing.metric).bounds
        together = score_interval(*pairs[i].evidence(row.name), 1 - LEVEL / len(places), bounds)
        tests[i, j] = SliceTest(
            test=test,
            p=p,
            adjusted_p=level,
            low=together.low if together else None,
            high=together.high if together else None,
            verdict=_verdict(slicing.metric, row.delta, level),
        )
    return tuple(
        replace(
            slicing,
            slices=tuple(
                replace(row, test=tests.get((i, j)), reason=row.reason or _untested(row))
                for j, row in enumerate(slicing.slices)
            ),
        )
        for i, slicing in enumerate(slicings)
    )


def _has_limits(delta: MetricDelta | None) -> bool:
    return delta is not None and delta.low is not None and delta.high is not None


def _untested(row: Slice) -> str | None:
    """Return why a slice with enough examples has no test; None where it has one."""
    if row.delta is None:
        return "not compared: the baseline has no such slice to pair with"
    if _has_limits(row.delta):
        return None
    return row.delta.note or "no interval: there are no scores of the same examples to pair with"


def _p(slicing: Slicing, row: Slice, pair: _Pair, tests: int) -> tuple[TestName, float]:
    """Return the test of a slice whose difference has limits, and its p.

    Args:
        slicing, row: the slice.
        pair: with what both stages have of it.
        tests: how many slices are tested at once.
    """
    before, after = pair.evidence(row.name)
    bounds, delta = metric_figure(slicing.metric).bounds, row.delta
    if isinstance(before, Resampled) and isinstance(after, Resampled):
        test, p = resampled_test(before, after, tests, bounds) or ("bootstrap", 1.0)
        contains_0 = delta and (delta.low or 0.0) <= 0 <= (delta.high or 0.0)
        # Where few examples make it up, the interval is wider than resamples show.
        return test, max(p, LEVEL) if contains_0 else p
    if not before or not after or isinstance(before, Resampled) or isinstance(after, Resampled):
        raise InternalError(f"slice {row.name} has limits and no scores")
    both_binary = is_binary(before) and is_binary(after)
    return "mcnemar" if both_binary else "student", paired_p(before, after, bounds)


def _verdict(metric: str, delta: MetricDelta | None, adjusted: float) -> Verdict:
    if delta is None or delta.value == 0 or adjusted >= LEVEL:
        return "no proven difference"
    return "better" if (delta.value > 0) == metric_figure(metric).larger_is_better else "worse"
