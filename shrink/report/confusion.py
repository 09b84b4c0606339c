"""Confusion matrices of a report: the whole of few classes, the most confused pairs of many."""

from __future__ import annotations

from shrink.contract.details import Confusion
from shrink.contract.report import Report, Stage
from shrink.report.content import NULL, Table

_MOST_CLASSES = 20
_MOST_PAIRS = 20
_LONGEST_NAME = 30


def confusion_tables(report: Report, only_finals: bool = False) -> list[Table]:
    """Return the tables of all stages, or of the results alone, in the report's order."""
    stages = [one for one in report.stages if not only_finals or one.name in report.finals]
    return [_table(stage, one) for stage in stages for one in stage.told.confusion]


def _table(stage: Stage, one: Confusion) -> Table:
    title = f"{stage.name}: {one.output}" if len(stage.told.confusion) > 1 else stage.name
    if 0 < len(one.labels) <= _MOST_CLASSES:
        rows = tuple(
            (_short(label), *map(_count, row))
            for label, row in zip(one.labels, one.counts, strict=True)
        )
        caption = "Rows: the true class; columns: the decided one."
        return Table(("true", *map(_short, one.labels)), rows, title, caption)
    pairs = one.confused[:_MOST_PAIRS]
    rows = tuple((_short(p.true), _short(p.decided), _count(p.count)) for p in pairs)
    return Table(("true", "taken for", "examples"), rows, title, "The pairs confused most.")


def _count(number: float) -> str:
    return NULL if number == 0 else f"{number:.10g}" if number == int(number) else f"{number:.1f}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
