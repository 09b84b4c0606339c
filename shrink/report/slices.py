"""Slices of the test examples: their differences, tables, and the gate on the worst slice.

One rule decides whether a slice changed: its paired interval, which holds for all m slices of the
stage together at 95 % (Bonferroni: 1 - 0.05 / m for each), excludes 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shrink.base.figures import LOSS, metric_figure
from shrink.base.intervals import Interval
from shrink.contract.comparison import ComparedRow, ComparedSlice, Comparison
from shrink.contract.details import Limits, MetricDelta, metric_delta
from shrink.contract.report import Report, Stage
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
    slice_text,
)
from shrink.report.content import NULL, Table
from shrink.report.deltas import (
    change_texts,
    exact_difference,
    own_interval,
    proven,
    score_interval,
)

if TYPE_CHECKING:
    from shrink.report.config import Gate  # pydantic, which commands on saved reports do without

LEVEL = 0.05
_MOST_ROWS = 40
_WORDS = {"worse": "lost", "better": "gained", "no proven difference": "no proven change"}


# ---- in the report ----


def reported_slices(
    stage: Stage,
    outcome: StageOutcome,
    baseline: StageOutcome | None,
    previous: StageOutcome | None,
) -> tuple[Slicing, ...]:
    """Return the slices of a complete stage with their differences and verdicts.

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
    return tuple(found) if is_itself else _judged_together(found, pairs)


@dataclass(frozen=True)
class _Pair:
    """One slicing of a stage and of another that it is compared with."""

    outcome: StageOutcome
    other: StageOutcome | None
    by: str

    def value(self, name: str, metric: str) -> float | None:
        """Return the metric of a slice in the other stage."""
        for slicing in self.other.result.slices if self.other else ():
            if slicing.by == self.by and slicing.metric == metric:
                for one in slicing.slices:
                    if one.name == name:
                        return one.metrics.get(metric)
        return None

    def interval(self, name: str, metric: str, confidence: float = 0.95) -> Interval | None:
        """Return the paired interval of a slice's difference; None without scores."""
        key = slice_evidence(self.by, name)
        scores: Scores = self.other.scores if self.other else {}
        now = self.outcome.scores.get(key)
        return score_interval(scores.get(key), now, confidence, metric_figure(metric).bounds)

    def delta(self, name: str, value: float | None, metric: str) -> MetricDelta | None:
        """Return the difference of a slice with its interval."""
        base = self.value(name, metric)
        if value is None or base is None:
            return None
        if self.other is not None and self.other.name == self.outcome.name:
            return MetricDelta(value=0.0, low=0.0, high=0.0)
        limits = self.interval(name, metric) or Interval(value, None, None)
        change = exact_difference(value, base)
        return MetricDelta(value=change, low=limits.low, high=limits.high, note=limits.note)


def _row(slicing: MeasuredSlicing, one: MeasuredSlice, base: _Pair, previous: _Pair) -> Slice:
    metric = slicing.metric
    value = one.metrics.get(metric)
    evidence: Evidence | None = base.outcome.scores.get(slice_evidence(slicing.by, one.name))
    interval = None if not evidence else own_interval(evidence, metric_figure(metric).bounds)
    reason = None
    if value is None:
        why = (one.undefined or {}).get(metric, "no reason was given")
        reason = f"{metric} is not defined: {why}"
    elif one.examples < FEWEST_EXAMPLES:
        reason = f"fewer than {FEWEST_EXAMPLES} examples: no verdict"
    return Slice(
        name=one.name,
        examples=one.examples,
        metrics=one.metrics,
        interval=None
        if interval is None
        else Limits(low=interval.low, high=interval.high, note=interval.note),
        delta=base.delta(one.name, value, metric),
        delta_previous=previous.delta(one.name, value, metric),
        reason=reason,
    )


def _average(stage: Stage, slicing: MeasuredSlicing, rows: Sequence[Slice]) -> float | None:
    """Return the difference over all examples: of recalls within classes, that of the accuracy.

    None where examples hold elements of several classes, because these count by their number.
    """
    if slicing.by != BY_CLASS or slicing.metric != RECALL:
        whole = metric_delta(stage.delta, slicing.metric)
        return None if whole is None else whole.value
    if sum(row.examples for row in rows) != stage.examples:
        return None
    known = [(row.examples, row.delta.value) for row in rows if row.delta is not None]
    total = sum(examples for examples, _ in known)
    return sum(examples * value for examples, value in known) / total if total else None


def _judged_together(slicings: Sequence[Slicing], pairs: Sequence[_Pair]) -> tuple[Slicing, ...]:
    """Return slicings with the verdicts of the slices that have enough examples."""
    count = sum(
        row.reason is None and row.delta is not None and row.delta.low is not None
        for slicing in slicings
        for row in slicing.slices
    )

    def judged(slicing: Slicing, row: Slice, pair: _Pair) -> Slice:
        if row.reason is not None:
            return row
        if row.delta is None:
            why = "not compared: the baseline has no such slice to pair with"
            return replace(row, reason=why)
        if row.delta.low is None or row.delta.high is None:
            why = "no interval: there are no scores of the same examples to pair with"
            return replace(row, reason=row.delta.note or why)
        limits = pair.interval(row.name, slicing.metric, 1 - LEVEL / count)
        verdict = proven(slicing.metric, limits) if limits else None
        if limits is None or verdict is None:
            return row
        test = SliceTest(low=limits.low, high=limits.high, verdict=verdict)
        return replace(row, test=test)

    return tuple(
        replace(slicing, slices=tuple(judged(slicing, row, pair) for row in slicing.slices))
        for slicing, pair in zip(slicings, pairs, strict=True)
    )


# ---- in tables ----


@dataclass(frozen=True)
class SliceLine:
    """A slice of a stage and the slicing it belongs to."""

    slicing: Slicing
    row: Slice

    @property
    def text(self) -> str:
        """The name for people."""
        return slice_text(self.slicing.by, self.row.name)

    @property
    def worsening(self) -> float:
        """By how much it is worse than the baseline; below 0 where it is better or unknown."""
        if self.row.delta is None:
            return float("-inf")
        sign = -1 if metric_figure(self.slicing.metric).larger_is_better else 1
        return sign * self.row.delta.value + 0.0

    @property
    def is_proven_loss(self) -> bool:
        """Whether it lost, at 95 % for all slices together."""
        return self.row.test is not None and self.row.test.verdict == "worse"

    @property
    def lost_more_than_average(self) -> bool:
        """Whether its limits lie wholly beyond the change of all examples."""
        test, average = self.row.test, self.slicing.average
        if not self.is_proven_loss or test is None or average is None:
            return False
        if test.low is None or test.high is None:
            return False
        larger = metric_figure(self.slicing.metric).larger_is_better
        return test.high < average if larger else test.low > average


def slice_lines(stage: Stage) -> list[SliceLine]:
    """Return the slices of a stage: proven losses first, then by how much they got worse."""
    lines = [SliceLine(slicing, row) for slicing in stage.slices for row in slicing.slices]
    # In a slice of few examples, one example is many points.
    return sorted(
        lines,
        key=lambda line: (
            not line.is_proven_loss,
            line.row.examples < FEWEST_EXAMPLES,
            -line.worsening,
        ),
    )


def sliced_results(report: Report) -> list[Stage]:
    """Return the final stages that have slices to compare with the baseline's."""
    return [stage for stage in report.ends if stage.slices and stage.name != report.baseline]


def has_news(stage: Stage) -> bool:
    """Whether its slices belong into a short summary: named by the user, or with a proven loss."""
    named = any(slicing.by != BY_CLASS for slicing in stage.slices)
    return named or any(line.is_proven_loss for line in slice_lines(stage))


def slice_sentence(stage: Stage) -> str:
    """Return which slice lost more than the average, or an empty string."""
    losses = [line for line in slice_lines(stage) if line.lost_more_than_average]
    if not losses:
        return ""
    worst = max(losses, key=lambda line: line.worsening)
    delta, average, metric = worst.row.delta, worst.slicing.average, worst.slicing.metric
    if delta is None or average is None:
        return ""
    others = f" So did {len(losses) - 1} more." if len(losses) > 1 else ""
    return (
        f"{worst.text[:1].upper()}{worst.text[1:]} lost more than the average: its {metric} "
        f"changed by {change_texts(metric, delta)[0]} ({worst.row.examples:,} examples), that of "
        f"all examples by {change_texts(metric, Interval(average, None, None))[0]}.{others}"
    )


def slice_table(
    report: Report, stage: Stage, most: int = _MOST_ROWS, more_in: str = "report.json"
) -> Table:
    """Return the slices of a final stage against the baseline, the largest losses first.

    Args:
        report: of the run.
        stage: one of its final stages.
        most: rows.
        more_in: the file that has all of them.
    """
    lines = slice_lines(stage)
    tested = sum(line.row.test is not None for line in lines)
    rest = f" {len(lines) - most} more in {more_in}." if len(lines) > most else ""
    metrics = {line.slicing.metric for line in lines}
    has_recall = any((one.slicing.by, one.slicing.metric) == (BY_CLASS, RECALL) for one in lines)
    recall = " Within a class, recall is the accuracy of its examples." if has_recall else ""
    caption = (
        f"{', '.join(sorted(metrics))} against {report.baseline} on the same test examples, with "
        f"paired 95 % intervals. Verdicts hold at 95 % for all {tested} slices together "
        f"(Bonferroni).{recall}{rest}"
    )
    base = report.stage(report.baseline)
    return Table(
        ("slice", "examples", "before", "after", "change [95 %]", "verdict"),
        tuple(_cells(line, base) for line in lines[:most]),
        f"{stage.name}: largest losses by slice",
        caption,
    )


def slice_tables(report: Report, most: int = _MOST_ROWS) -> list[Table]:
    """Return a table for each final stage that has slices."""
    return [slice_table(report, stage, most) for stage in sliced_results(report)]


def _cells(line: SliceLine, base: Stage | None) -> tuple[str, ...]:
    metric, row = line.slicing.metric, line.row
    figure, change = metric_figure(metric), NULL
    before = _same_slice(base, line.slicing, row.name)
    if row.delta is not None:
        text, limits = change_texts(metric, row.delta)
        short = text.removesuffix(" points")
        change = f"{short} [{limits.replace(' to ', ', ')}]" if limits else short
    return (
        line.text,
        f"{row.examples:,}",
        figure.text(None if before is None else before.metrics.get(metric)),
        figure.text(row.metrics.get(metric)),
        change,
        _WORDS[row.test.verdict] if row.test is not None else row.reason or NULL,
    )


def _same_slice(stage: Stage | None, slicing: Slicing, name: str) -> Slice | None:
    for other in stage.slices if stage else ():
        if (other.by, other.metric) == (slicing.by, slicing.metric):
            return other.slice(name)
    return None


# ---- of several runs ----


def compared_slices(stage: Stage) -> Iterator[ComparedSlice]:
    """Yield the slices of a stage's report for a comparison of runs."""
    for slicing in stage.slices:
        for one in slicing.slices:
            yield ComparedSlice(
                by=slicing.by,
                name=one.name,
                metric=slicing.metric,
                examples=one.examples,
                value=one.metrics.get(slicing.metric),
                delta=one.delta,
                verdict=None if one.test is None else one.test.verdict,
            )


def compared_slices_table(found: Comparison, most: int = _MOST_ROWS) -> Table | None:
    """Return a row per slice and a column per run, the largest loss first.

    None where no two runs have a slice in common.
    """
    columns = [
        (row, {(one.by, one.name, one.metric): one for one in row.slices})
        for row in found.rows
        if row.slices
    ]
    keys = dict.fromkeys(key for _, slices in columns for key in slices)
    shared = [key for key in keys if sum(key in slices for _, slices in columns) > 1]
    if not shared:
        return None

    def worsening(one: ComparedSlice) -> float:
        if one.delta is None:
            return float("-inf")
        return -one.delta.value if metric_figure(one.metric).larger_is_better else one.delta.value

    worst = {key: max(worsening(s[key]) for _, s in columns if key in s) for key in shared}
    rows = (
        (
            f"{slice_text(by, name)}: {metric}",
            *(_compared_cell(row, slices.get((by, name, metric))) for row, slices in columns),
        )
        for by, name, metric in sorted(shared, key=lambda key: -worst[key])[:most]
    )
    rest = f" {len(shared) - most} more in compare.json." if len(shared) > most else ""
    caption = (
        "The metric on the slice's test examples, and its change against the same slice of each "
        "run's own baseline; lost or gained where the interval for all slices of the run together "
        f"excludes 0. The largest loss comes first.{rest}"
    )
    return Table(("slice", *(row.name for row, _ in columns)), tuple(rows), "", caption)


def _compared_cell(row: ComparedRow, one: ComparedSlice | None) -> str:
    if one is None or one.value is None:
        return NULL
    value = metric_figure(one.metric).text(one.value)
    if one.delta is None or row.stage == row.baseline:
        return value
    change = change_texts(one.metric, one.delta)[0].removesuffix(" points")
    verdict = f", {_WORDS[one.verdict]}" if one.verdict in ("worse", "better") else ""
    return f"{value} ({change}{verdict})"


# ---- in the gate worst_slice_drop ----


@dataclass(frozen=True)
class WorstSlice:
    """The slice that decides a gate.

    Attributes:
        by, name, metric: of the slice.
        value: by how much it got worse, in the metric's own unit; below 0 where it got better.
        limits: with a confidence, the interval of the value.
        beyond: with a confidence, whether it lies wholly beyond the limit.
        note: how the interval was corrected, or why there is none.
    """

    by: str
    name: str
    metric: str
    value: float
    limits: tuple[float, float] | None = None
    beyond: bool | None = None
    note: str | None = None


def worst_slice(
    stage: Stage, base: Stage, gate: Gate, before: Scores, after: Scores
) -> WorstSlice | str:
    """Return the slice that lost most against the baseline, or why there is none.

    With a confidence, the intervals of the m slices are those at 1 - (1 - confidence) / m. The
    slice whose interval lies farthest decides; one without an interval counts by its point value.

    Args:
        stage: with its slices.
        base: the baseline, with its own.
        gate: with limit, confidence and `by`.
        before, after: the scores behind the intervals, of the baseline and of the stage.
    """
    candidates = list(_candidates(stage, gate))
    for slicing, row in candidates:
        then = _same_slice(base, slicing, row.name)
        if then is None or then.examples < FEWEST_EXAMPLES:
            continue
        if row.metrics.get(slicing.metric) is None and then.metrics.get(slicing.metric) is not None:
            where = slice_text(slicing.by, row.name)
            why = f": {row.reason}" if row.reason else ""
            return f"{where} had a value in {base.name}, and has none{why}"
    compared = [(slicing, row) for slicing, row in candidates if row.delta is not None]
    if not compared:
        return _why_none(stage, gate)
    found = [_worst_of(slicing, row) for slicing, row in compared]
    if gate.confidence is None:
        return max(found, key=lambda one: one.value)
    level = 1 - (1 - gate.confidence) / len(found)
    judged = []
    for one, (_, row) in zip(found, compared, strict=True):
        key, figure = slice_evidence(one.by, one.name), metric_figure(one.metric)
        interval = score_interval(before.get(key), after.get(key), level, figure.bounds)
        if interval is None or interval.low is None or interval.high is None:
            why = "no interval without scores of the same examples"
            known = row.delta.note if row.delta else None
            note = f"{known or why}; the point value decides"
            judged.append(replace(one, beyond=one.value > gate.limit, note=note))
            continue
        sign = -1 if figure.larger_is_better else 1
        low, high = sorted((sign * interval.low, sign * interval.high))
        corrected = f"the interval is corrected for {len(found)} slices" if len(found) > 1 else None
        beyond = low > gate.limit
        judged.append(replace(one, limits=(low, high), beyond=beyond, note=corrected))
    farthest = max(judged, key=lambda one: one.limits[0] if one.limits else one.value)
    return farthest if farthest.beyond else max(judged, key=lambda one: one.value)


def _candidates(stage: Stage, gate: Gate) -> Iterator[tuple[Slicing, Slice]]:
    """Yield the slices with enough examples, of the slicings that a gate is about."""
    names = list(stage.metrics or ())
    main = metric_figure(next((name for name in names if name != LOSS), LOSS))
    for slicing in stage.slices:
        figure = metric_figure(slicing.metric)
        alike = (figure.unit, figure.larger_is_better) == (main.unit, main.larger_is_better)
        if slicing.by == gate.by if gate.by is not None else alike:
            large = [row for row in slicing.slices if row.examples >= FEWEST_EXAMPLES]
            yield from ((slicing, row) for row in large)


def _worst_of(slicing: Slicing, row: Slice) -> WorstSlice:
    change = row.delta.value if row.delta else 0.0
    sign = -1 if metric_figure(slicing.metric).larger_is_better else 1
    return WorstSlice(slicing.by, row.name, slicing.metric, sign * change + 0.0)


def _why_none(stage: Stage, gate: Gate) -> str:
    if not stage.slices:
        return f"{stage.name} has no slices"
    if gate.by is not None and gate.by not in [one.by for one in stage.slices]:
        return f"there is no slicing {gate.by}; there is {', '.join(s.by for s in stage.slices)}"
    return f"no slice has {FEWEST_EXAMPLES} examples and a difference to the baseline"
