"""What a teacher brought: the student alone, the student taught, and the teacher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shrink.base.figures import format_change, format_value, is_number, metric_figure
from shrink.base.intervals import Interval
from shrink.contract.deltas import MetricDelta
from shrink.contract.details import Control
from shrink.contract.report import Report
from shrink.report.content import NULL


@dataclass(frozen=True)
class ControlTable:
    """Test figures of one distillation with `control: true`; the first cell of a row names it."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Verdict = Literal["better", "worse", "no proven difference"]


def verdict(name: str, gain: Interval) -> Verdict | None:
    """Return what a teacher brought by the report's own rule, None without an interval.

    An interval that contains 0 proves no difference, whatever its middle.

    Args:
        name: of the metric, which decides the direction.
        gain: the metric of the taught student less that of the student alone.
    """
    if gain.low is None or gain.high is None:
        return None
    if gain.low <= 0 <= gain.high:
        return "no proven difference"
    return "better" if (gain.low > 0) == metric_figure(name).larger_is_better else "worse"


def control_sentence(
    name: str, alone: float, taught: float, teacher: float, gain: Interval, updates: int
) -> str:
    """Return what a teacher brought, in words and in the metric's own unit.

    Args:
        name: of the metric; `alone`, `taught` and `teacher` are its values.
        gain: `taught` less `alone`.
        updates: that each student was trained for.
    """
    figure = metric_figure(name)
    unit = " points" if figure.unit == "fraction" else ""
    change = f"{format_change(gain.value, figure.unit)}{unit}"
    if gain.low is None or gain.high is None:
        span = "; there is no interval"
    else:
        limits = (format_change(limit, figure.unit) for limit in (gain.low, gain.high))
        span = f", 95 % interval {' to '.join(limits)}: {verdict(name, gain)}"
    return (
        f"control: after {updates:,} updates the student has {name} {figure.text(taught)} with its "
        f"teacher and {figure.text(alone)} without ({change}{span}); "
        f"the teacher has {figure.text(teacher)}"
    )


def control_tables(report: Report) -> list[ControlTable]:
    """Return a table for each stage whose student was trained without its teacher, too."""
    found = []
    for stage in report.stages:
        control = stage.told.control or Control()
        if names := list(control.taught):
            rows = (
                ("student alone", *_metrics(control.alone, names)),
                ("student taught", *_metrics(control.taught, names)),
                ("teacher", *_metrics(control.teacher, names)),
                ("teaching brought", *(_gain(name, control.gain.get(name)) for name in names)),
            )
            found.append(ControlTable(stage.name, ("", *names), rows))
    return found


def _metrics(values: Mapping[str, object], names: list[str]) -> list[str]:
    pairs = ((values.get(name), metric_figure(name).unit) for name in names)
    return [format_value(value, unit) if is_number(value) else NULL for value, unit in pairs]


def _gain(name: str, gain: MetricDelta | None) -> str:
    unit = metric_figure(name).unit
    numbers = (gain.value, gain.low, gain.high) if gain else (None, None, None)
    texts = [NULL if number is None else format_change(number, unit) for number in numbers]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]"
