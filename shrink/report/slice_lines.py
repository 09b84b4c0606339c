"""Slices as people read them: who lost most, in a table and in a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from shrink.base.figures import metric_figure
from shrink.base.intervals import Interval
from shrink.contract.report import Report, Stage
from shrink.contract.slices import BY_CLASS, FEWEST_EXAMPLES, RECALL, Slice, Slicing, slice_text
from shrink.report.content import NULL, Table
from shrink.report.deltas import change_texts

_MOST_ROWS = 40
_WORDS = {"worse": "lost", "better": "gained", "no proven difference": "no proven change"}


@dataclass(frozen=True)
class SliceLine:
    """A slice of a stage, with what it is a slice of."""

    slicing: Slicing
    row: Slice

    @property
    def text(self) -> str:
        """What the slice is called."""
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
        """Whether it lost more than chance explains, among all slices that were tested."""
        return self.row.test is not None and self.row.test.verdict == "worse"

    @property
    def paid_more(self) -> bool:
        """Whether it proved to lose more than all examples did: limits for all slices together."""
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
    # Too few examples lose many points by one of them.
    return sorted(
        lines,
        key=lambda one: (
            not one.is_proven_loss,
            one.row.examples < FEWEST_EXAMPLES,
            -one.worsening,
        ),
    )


def sliced_results(report: Report) -> list[Stage]:
    """Return the final stages that have slices to compare with the baseline's."""
    return [stage for stage in report.ends if stage.slices and stage.name != report.baseline]


def has_news(stage: Stage) -> bool:
    """Whether its slices belong into a short summary: asked for, or with a proven loss."""
    asked = any(slicing.by != BY_CLASS for slicing in stage.slices)
    return asked or any(line.is_proven_loss for line in slice_lines(stage))


def slice_sentence(stage: Stage) -> str:
    """Return which slice lost more than all examples did, proven; or nothing."""
    paid = [line for line in slice_lines(stage) if line.paid_more]
    if not paid:
        return ""
    worst = max(paid, key=lambda one: one.worsening)
    delta, test, metric = worst.row.delta, worst.row.test, worst.slicing.metric
    if delta is None or test is None or worst.slicing.average is None:
        return ""
    whole = Interval(worst.slicing.average, None, None)
    others = f" So did {len(paid) - 1} more." if len(paid) > 1 else ""
    return (
        f"{_capital(worst.text)} paid more than the average: its {metric} changed by "
        f"{change_texts(metric, delta)[0]} ({worst.row.examples:,} examples, adjusted p "
        f"{_p(test.adjusted_p)}), that of all examples by "
        f"{change_texts(metric, whole)[0]}.{others}"
    )


def slice_table(
    report: Report, stage: Stage, most: int = _MOST_ROWS, more_in: str = "report.json"
) -> Table:
    """Return who lost most: the slices of a stage against the baseline.

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
        f"{', '.join(sorted(metrics))} against {report.baseline} over the same test examples, "
        f"with paired 95 % intervals. p is adjusted for {tested} slices (Holm).{recall}{rest}"
    )
    base = report.stage(report.baseline)
    return Table(
        ("slice", "examples", "before", "after", "change [95 %]", "adjusted p", "verdict"),
        tuple(_cells(line, base) for line in lines[:most]),
        f"{stage.name}: who lost most",
        caption,
    )


def slice_tables(report: Report, most: int = _MOST_ROWS) -> list[Table]:
    """Return a table for each final stage that has slices."""
    return [slice_table(report, stage, most) for stage in sliced_results(report)]


def _cells(line: SliceLine, base: Stage | None) -> tuple[str, ...]:
    metric, row = line.slicing.metric, line.row
    figure = metric_figure(metric)
    test = row.test
    return (
        line.text,
        f"{row.examples:,}",
        figure.text(_before(line, base)),
        figure.text(row.metrics.get(metric)),
        _change(line),
        NULL if test is None else _p(test.adjusted_p),
        _WORDS[test.verdict] if test is not None else row.reason or NULL,
    )


def _before(line: SliceLine, base: Stage | None) -> float | None:
    for slicing in base.slices if base else ():
        if (slicing.by, slicing.metric) == (line.slicing.by, line.slicing.metric):
            row = slicing.slice(line.row.name)
            return None if row is None else row.metrics.get(slicing.metric)
    return None


def _change(line: SliceLine) -> str:
    delta = line.row.delta
    if delta is None:
        return NULL
    text, limits = change_texts(line.slicing.metric, delta)
    short = text.removesuffix(" points")
    return f"{short} [{limits.replace(' to ', ', ')}]" if limits else short


def _p(value: float) -> str:
    return "below 0.0001" if value < 0.0001 else f"{value:.2g}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
