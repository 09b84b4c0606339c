"""The slice that lost most, as a gate looks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shrink.base.figures import LOSS, metric_figure
from shrink.contract.report import Stage
from shrink.contract.result import Scores
from shrink.contract.slices import (
    FEWEST_EXAMPLES,
    Slice,
    Slicing,
    slice_evidence,
    slice_text,
)
from shrink.report.config import Gate
from shrink.report.deltas import exact_difference, score_interval


@dataclass(frozen=True)
class WorstSlice:
    """The slice that decides a gate.

    Attributes:
        by, name, metric: of the slice, and what got worse.
        value: by how much, in the metric's own unit; below 0 where it got better.
        limits: with a confidence, the interval of that.
        beyond: with a confidence, whether it lies wholly beyond the limit.
        note: how the interval was corrected, or why there is none.
        current, saved: the metric here and in a saved report, where that is compared.
    """

    by: str
    name: str
    metric: str
    value: float
    limits: tuple[float, float] | None = None
    beyond: bool | None = None
    note: str | None = None
    current: float | None = None
    saved: float | None = None


@dataclass(frozen=True)
class LostMetric:
    """A slice that had a value, and has none now: that is a miss, whatever the limit.

    Attributes:
        reason: which one, and why it has none.
    """

    reason: str


def worst_slice(
    stage: Stage, base: Stage, gate: Gate, before: Scores, after: Scores
) -> WorstSlice | str:
    """Return the slice that lost most against the baseline, or why there is none.

    With a confidence the intervals of all m slices that the gate looks at are those at
    1 - (1 - confidence) / m, which is the first step of Holm's procedure: it decides whether any of
    them lost more than the limit. The slice is then the one whose interval lies farthest; one
    without an interval stands there with its point value.

    Args:
        stage: with its slices.
        base: the baseline, with its own.
        gate: with limit, confidence and `by`.
        before, after: what intervals are computed from, of the baseline and of the stage.
    """
    looked_at = [
        (slicing, row) for slicing, row in _looked_at(stage, gate) if row.delta is not None
    ]
    if stage.slices and (lost := _lost(stage, base, gate)) is not None:
        return lost.reason
    if not looked_at:
        return _why_none(stage, gate)
    found = [_of(slicing, row) for slicing, row in looked_at]
    worst = max(found, key=lambda one: one.value)
    if gate.confidence is None:
        return worst
    level, count = 1 - (1 - gate.confidence) / len(found), len(found)
    judged = [
        _judged(one, row, gate, before, after, level, count)
        for one, (_, row) in zip(found, looked_at, strict=True)
    ]
    farthest = max(judged, key=lambda one: one.limits[0] if one.limits else one.value)
    return farthest if farthest.beyond else max(judged, key=lambda one: one.value)


def worst_slice_against(
    stage: Stage, saved: Stage | None, gate: Gate
) -> WorstSlice | LostMetric | str:
    """Return the slice that is worst against that of a saved report, or why nothing is compared.

    Args:
        stage: of this run.
        saved: the stage of the report; None where it has none to compare with.
        gate: with `by`.
    """
    if saved is None or not saved.slices:
        return "nothing to compare with: the saved report has no slices"
    if (lost := _lost(stage, saved, gate)) is not None:
        return lost
    found = []
    for slicing, row in _looked_at(stage, gate):
        other = next(
            (s for s in saved.slices if (s.by, s.metric) == (slicing.by, slicing.metric)), None
        )
        before = other.slice(row.name) if other else None
        now, then = row.metrics.get(slicing.metric), _metric(before, slicing.metric)
        if now is not None and then is not None and _is_large(before):
            rise = exact_difference(now, then)
            worse = -rise + 0.0 if metric_figure(slicing.metric).larger_is_better else rise
            found.append(
                WorstSlice(slicing.by, row.name, slicing.metric, worse, current=now, saved=then)
            )
    if not found:
        return "nothing to compare with: the saved report has no slice of these"
    return max(found, key=lambda one: one.value)


def _lost(stage: Stage, before: Stage, gate: Gate) -> LostMetric | None:
    """Return the first slice without a value that had one before, of those with enough examples."""
    for slicing, row in _looked_at(stage, gate):
        if row.metrics.get(slicing.metric) is None:
            for other in before.slices:
                then = other.slice(row.name)
                if (other.by, other.metric) != (slicing.by, slicing.metric) or not _is_large(then):
                    continue
                if _metric(then, slicing.metric) is not None:
                    where = slice_text(slicing.by, row.name)
                    why = f": {row.reason}" if row.reason else ""
                    return LostMetric(f"{where} had a value in {before.name}, and has none{why}")
    return None


def _metric(row: Slice | None, metric: str) -> float | None:
    return None if row is None else row.metrics.get(metric)


def _is_large(row: Slice | None) -> bool:
    return row is not None and row.examples >= FEWEST_EXAMPLES


def _looked_at(stage: Stage, gate: Gate) -> Iterator[tuple[Slicing, Slice]]:
    """Yield the slices with enough examples, of the slicings that a gate is about."""
    names = list(stage.metrics or ())
    main = metric_figure(next((name for name in names if name != LOSS), LOSS))
    for slicing in stage.slices:
        figure = metric_figure(slicing.metric)
        alike = (figure.unit, figure.larger_is_better) == (main.unit, main.larger_is_better)
        if slicing.by == gate.by if gate.by is not None else alike:
            yield from ((slicing, row) for row in slicing.slices if _is_large(row))


def _why_none(stage: Stage, gate: Gate) -> str:
    if not stage.slices:
        return f"{stage.name} has no slices"
    if gate.by is not None and gate.by not in [one.by for one in stage.slices]:
        return f"there is no slicing {gate.by}; there is {', '.join(s.by for s in stage.slices)}"
    return f"no slice has {FEWEST_EXAMPLES} examples and a difference to the baseline"


def _of(slicing: Slicing, row: Slice) -> WorstSlice:
    change = row.delta.value if row.delta else 0.0
    sign = -1 if metric_figure(slicing.metric).larger_is_better else 1
    return WorstSlice(slicing.by, row.name, slicing.metric, sign * change + 0.0)


def _judged(
    one: WorstSlice,
    row: Slice,
    gate: Gate,
    before: Scores,
    after: Scores,
    level: float,
    count: int,
) -> WorstSlice:
    """Return a slice with its corrected interval; without one its point value decides."""
    key, figure = slice_evidence(one.by, one.name), metric_figure(one.metric)
    interval = score_interval(before.get(key), after.get(key), level, figure.bounds)
    if interval is None or interval.low is None or interval.high is None:
        why = (row.delta and row.delta.note) or "no interval without scores of the same examples"
        told = f"{why}; the point value decides"
        return replace(one, beyond=one.value > gate.limit, note=told)
    sign = -1 if figure.larger_is_better else 1
    low, high = sorted((sign * interval.low, sign * interval.high))
    note = f"the interval is corrected for {count} slices (Holm)" if count > 1 else None
    return replace(one, limits=(low, high), beyond=low > gate.limit, note=note)
