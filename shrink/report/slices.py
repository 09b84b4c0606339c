"""What became of each slice of the test examples: its difference, and whether chance explains it.

All slices of a stage that have enough examples are tested against the baseline at once: p values
are adjusted by Holm's procedure, and limits hold for all of them together (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shrink.base.figures import metric_figure
from shrink.base.intervals import Interval
from shrink.base.resampled import Resampled
from shrink.base.significance import holm, is_binary, paired_p, resampled_p
from shrink.contract.details import Limits, MetricDelta, metric_delta
from shrink.contract.report import Stage
from shrink.contract.result import Evidence, Scores, StageOutcome
from shrink.contract.slices import (
    BY_CLASS,
    FEWEST_EXAMPLES,
    MeasuredSlice,
    MeasuredSlicing,
    Slice,
    SliceTest,
    Slicing,
    slice_evidence,
)
from shrink.report.deltas import Verdict, exact_difference, own_interval, score_interval

_LEVEL = 0.05
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
    """Return the difference of all examples: of recalls within classes, that of the accuracy."""
    if slicing.by != BY_CLASS:
        whole = metric_delta(stage.delta, slicing.metric)
        return None if whole is None else whole.value
    known = [(row.examples, row.delta.value) for row in rows if row.delta is not None]
    total = sum(examples for examples, _ in known)
    return sum(examples * value for examples, value in known) / total if total else None


def _tested(slicings: Sequence[Slicing], pairs: Sequence[_Pair]) -> tuple[Slicing, ...]:
    """Return slicings with the tests of those of their slices that have enough examples."""
    places, levels = [], []
    for i, (slicing, pair) in enumerate(zip(slicings, pairs, strict=True)):
        for j, row in enumerate(slicing.slices):
            p = None if row.reason or row.delta is None else _p(slicing, row, pair)
            if p is not None:
                places.append((i, j))
                levels.append(p)
    tests: dict[tuple[int, int], SliceTest] = {}
    for (i, j), p, adjusted in zip(places, levels, holm(levels), strict=True):
        slicing, pair = slicings[i], pairs[i]
        row, metric = slicing.slices[j], slicing.metric
        evidence = pair.evidence(row.name)
        bounds = metric_figure(metric).bounds
        together = score_interval(*evidence, 1 - _LEVEL / len(levels), bounds)
        tests[i, j] = SliceTest(
            test=_test_of(*evidence),
            p=p,
            adjusted_p=adjusted,
            low=together.low if together else None,
            high=together.high if together else None,
            verdict=_verdict(metric, row.delta, adjusted),
        )
    return tuple(
        replace(
            slicing,
            slices=tuple(
                replace(row, test=tests.get((i, j)), reason=row.reason or _untested(tests, i, j))
                for j, row in enumerate(slicing.slices)
            ),
        )
        for i, slicing in enumerate(slicings)
    )


def _untested(tests: Mapping[tuple[int, int], SliceTest], i: int, j: int) -> str | None:
    return None if (i, j) in tests else "not compared: the baseline has no such slice to pair with"


def _p(slicing: Slicing, row: Slice, pair: _Pair) -> float | None:
    before, after = pair.evidence(row.name)
    if isinstance(before, Resampled) and isinstance(after, Resampled):
        p, delta = resampled_p(before, after), row.delta
        if p is not None and delta is not None and delta.low is not None and delta.high is not None:
            # Where few examples make it up, the interval is wider than resamples show.
            return max(p, _LEVEL) if delta.low <= 0 <= delta.high else p
        return None
    if not before or not after or isinstance(before, Resampled) or isinstance(after, Resampled):
        return None
    if len(before) != len(after):
        return None
    return paired_p(before, after, metric_figure(slicing.metric).bounds)


def _test_of(before: Evidence | None, after: Evidence | None) -> TestName:
    if isinstance(before, Resampled) or isinstance(after, Resampled):
        return "bootstrap"
    return "mcnemar" if is_binary(before or ()) and is_binary(after or ()) else "student"


def _verdict(metric: str, delta: MetricDelta | None, adjusted: float) -> Verdict:
    if delta is None or delta.value == 0 or adjusted >= _LEVEL:
        return "no proven difference"
    return "better" if (delta.value > 0) == metric_figure(metric).larger_is_better else "worse"
