"""Slices of the test examples: their differences, tables, and the gate on the worst slice.

One rule decides whether a slice changed: its paired interval, which holds for all m slices of the
stage together at 95 % (Bonferroni: 1 - 0.05 / m for each), excludes 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shrink.base.figures import metric_figure
from shrink.base.intervals import Interval
from shrink.contract.comparison import ComparedRow, ComparedSlice, Comparison
from shrink.contract.details import MetricDelta, metric_delta
from shrink.contract.report import Report, Stage
from shrink.contract.result import StageOutcome
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
from shrink.report.content import change_text
from shrink.report.deltas import (
    change_texts,
    exact_difference,
    metric_change,
    own_limits,
    proven,
    score_interval,
)
from shrink.report.page import NULL, Table

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
    found = [
        (one, tuple(_row(one, row, outcome, baseline, previous) for row in one.slices))
        for one in outcome.result.slices
    ]
    if baseline is not None and baseline.name != outcome.name:
        tested = [row for _, rows in found for row in rows if row.reason is None and row.delta]
        level = 1 - LEVEL / max(1, sum(row.delta.low is not None for row in tested if row.delta))
        found = [
            (one, tuple(_with_verdict(one, row, outcome, baseline, level) for row in rows))
            for one, rows in found
        ]
    return tuple(
        Slicing(
            by=one.by,
            metric=one.metric,
            average=_average(stage, one, rows),
            slices=rows,
            unlisted=one.unlisted,
        )
        for one, rows in found
    )


def _row(
    slicing: MeasuredSlicing,
    one: MeasuredSlice,
    outcome: StageOutcome,
    baseline: StageOutcome | None,
    previous: StageOutcome | None,
) -> Slice:
    metric, reason = slicing.metric, None
    if one.metrics.get(metric) is None:
        why = (one.undefined or {}).get(metric, "no reason was given")
        reason = f"{metric} is not defined: {why}"
    elif one.examples < FEWEST_EXAMPLES:
        reason = f"fewer than {FEWEST_EXAMPLES} examples: no verdict"
    return Slice(
        name=one.name,
        examples=one.examples,
        metrics=one.metrics,
        interval=own_limits(outcome.scores.get(slice_evidence(slicing.by, one.name)), metric),
        delta=_delta(slicing, one.name, outcome, baseline),
        delta_previous=_delta(slicing, one.name, outcome, previous),
        reason=reason,
    )


def _delta(
    slicing: MeasuredSlicing,
    name: str,
    outcome: StageOutcome,
    other: StageOutcome | None,
    confidence: float = 0.95,
) -> MetricDelta | None:
    """Return the difference of a slice to the same slice of another stage, with its interval."""
    values = [
        row.metrics.get(slicing.metric)
        for stage in (outcome, other)
        for one in (stage.result.slices if stage else ())
        for row in one.slices
        if (one.by, one.metric, row.name) == (slicing.by, slicing.metric, name)
    ]
    if other is None or len(values) < 2 or values[0] is None or values[1] is None:
        return None
    if other.name == outcome.name:
        return MetricDelta(value=0.0, low=0.0, high=0.0)
    before, after = (one.scores.get(slice_evidence(slicing.by, name)) for one in (other, outcome))
    bounds = metric_figure(slicing.metric).bounds
    return metric_change(values[0], values[1], score_interval(before, after, confidence, bounds))


def _with_verdict(
    slicing: MeasuredSlicing,
    row: Slice,
    outcome: StageOutcome,
    baseline: StageOutcome,
    level: float,
) -> Slice:
    """Return a slice with its verdict, at a level that holds for all slices of the stage."""
    if row.reason is not None:
        return row
    if row.delta is None:
        return replace(row, reason="not compared: the baseline has no such slice to pair with")
    if row.delta.low is None:
        why = "no interval: no scores of the same examples to pair with"
        return replace(row, reason=row.delta.note or why)
    delta = _delta(slicing, row.name, outcome, baseline, level)
    verdict = proven(slicing.metric, delta) if delta else None
    if delta is None or verdict is None:
        return row
    return replace(row, test=SliceTest(low=delta.low, high=delta.high, verdict=verdict))


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
    lost = sum(examples * value for examples, value in known)
    return exact_difference(lost / total, 0.0) if total else None


# ---- in tables ----


def worsening(metric: str, delta: MetricDelta | None) -> float:
    """Return by how much a metric got worse; minus infinity where that is not known."""
    if delta is None:
        return float("-inf")
    return (-delta.value if metric_figure(metric).larger_is_better else delta.value) + 0.0


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
        return worsening(self.slicing.metric, self.row.delta)

    @property
    def is_proven_loss(self) -> bool:
        """Whether it lost, at 95 % for all slices together."""
        return self.row.test is not None and self.row.test.verdict == "worse"

    @property
    def lost_more_than_average(self) -> bool:
        """Whether its limits lie wholly beyond the change of all examples."""
        test, average = self.row.test, self.slicing.average
        if not self.is_proven_loss or test is None or test.low is None or test.high is None:
            return False
        if average is None:
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


def no_loss_sentence(stage: Stage) -> str:
    """Return that no slice is proven worse than the baseline."""
    lines = slice_lines(stage)
    tested = sum(line.row.test is not None for line in lines)
    total = len(lines) + _unlisted(stage)
    if not tested:
        return f"no verdict on any of {total:,} slices of the test examples."
    rest = f"; {total - tested:,} more have no verdict" if total > tested else ""
    return (
        f"no proven loss in any of {tested} slices of the test examples, with 95 % confidence for "
        f"all together{rest}."
    )


def _unlisted(stage: Stage) -> int:
    return sum(slicing.unlisted for slicing in stage.slices)


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


def slice_table(report: Report, stage: Stage, most: int = _MOST_ROWS) -> Table:
    """Return the slices of a final stage against the baseline, the largest losses first.

    Args:
        report: of the run.
        stage: one of its final stages.
        most: rows.
    """
    lines = slice_lines(stage)
    tested = sum(line.row.test is not None for line in lines)
    rest = f" {len(lines) - most} more in report.json." if len(lines) > most else ""
    if unlisted := _unlisted(stage):
        rest += f" {unlisted:,} smaller slices are not measured."
    metrics = {line.slicing.metric for line in lines}
    has_recall = any((one.slicing.by, one.slicing.metric) == (BY_CLASS, RECALL) for one in lines)
    verdicts = f" With 95 % confidence all verdicts hold, of {tested} slices." if tested else ""
    recall = " Within a class, recall is the accuracy of its examples." if has_recall else ""
    caption = (
        f"{', '.join(sorted(metrics))} against {report.baseline} on the same test examples, with "
        f"paired 95 % intervals.{verdicts}{recall}{rest}"
    )
    base = report.stage(report.baseline)
    return Table(
        ("slice", "examples", "before", "after", "change [95 %]", "verdict"),
        tuple(_cells(line, base) for line in lines[:most]),
        f"{stage.name}: largest losses by slice",
        caption,
    )


def _cells(line: SliceLine, base: Stage | None) -> tuple[str, ...]:
    metric, row = line.slicing.metric, line.row
    figure, before = metric_figure(metric), same_slice(base, line.slicing, row.name)
    return (
        line.text,
        f"{row.examples:,}",
        figure.text(None if before is None else before.metrics.get(metric)),
        figure.text(row.metrics.get(metric)),
        change_text(metric, row.delta),
        _WORDS[row.test.verdict] if row.test is not None else row.reason or NULL,
    )


def same_slice(stage: Stage | None, slicing: Slicing, name: str) -> Slice | None:
    """Return the slice of this name of the same slicing in a stage."""
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


def compared_slices_table(
    found: Comparison, most: int = _MOST_ROWS, *, changed: bool = False
) -> Table | None:
    """Return a row per slice and a column per run, the largest loss first.

    None where no two runs have a slice in common; with `changed`, one in which they differ.
    """
    columns = [
        (row, {(one.by, one.name, one.metric): one for one in row.slices})
        for row in found.rows
        if row.slices
    ]
    keys = dict.fromkeys(key for _, slices in columns for key in slices)
    shared = [key for key in keys if sum(key in slices for _, slices in columns) > 1]
    if changed:
        values = {
            key: {slices[key].value for _, slices in columns if key in slices} for key in shared
        }
        shared = [key for key in shared if len(values[key]) > 1]
    if not shared:
        return None

    worst = {
        key: max(worsening(key[2], s[key].delta) for _, s in columns if key in s) for key in shared
    }
    rows = (
        (
            f"{slice_text(by, name)}: {metric}",
            *(_compared_cell(row, slices.get((by, name, metric))) for row, slices in columns),
        )
        for by, name, metric in sorted(shared, key=lambda key: -worst[key])[:most]
    )
    rest = f" {len(shared) - most} more in compare.json." if len(shared) > most else ""
    caption = (
        "The metric on the slice's test examples, and its change against the run's own baseline. "
        "Lost, gained: the interval, corrected for all slices of the run, excludes 0. The largest "
        f"loss comes first.{rest}"
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
