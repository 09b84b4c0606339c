"""A comparison as one HTML file: no script, no network; two lists choose what the plot shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from shrink.base.figures import figure_of
from shrink.contract.comparison import ComparedRow, Comparison
from shrink.report import svg
from shrink.report.compare_table import (
    STATUS,
    caption_of,
    comparison_table,
    delta_table,
    failures_of,
    runs_of,
    settings_table,
    summary_of,
)
from shrink.report.content import Table
from shrink.report.html import template
from shrink.report.scatter import compared_plot
from shrink.report.slices import compared_slices_table

_MOST_COLUMNS = 9
"""As many as fit beside each other on a page; the others can be opened."""
_TONES = {"passed": "pass", "missed": "fail", "failed": "fail", "stopped": "warn"}


@dataclass(frozen=True)
class Choice:
    """A figure that may be drawn across or up; its number is in the identifiers of its inputs."""

    number: int
    name: str
    words: str


@dataclass(frozen=True)
class Chosen:
    """A plot, and the numbers of its two figures."""

    x: int
    y: int
    plot: svg.Plot


@dataclass(frozen=True)
class Plots:
    """What can be drawn.

    Attributes:
        choices: the figures.
        x, y: the figures that are drawn first.
        drawn: a plot for each pair that has one.
        without: pairs that have none, one figure against itself among them.
    """

    choices: tuple[Choice, ...]
    x: int
    y: int
    drawn: tuple[Chosen, ...]
    without: tuple[tuple[int, int], ...]


def render_comparison_html(found: Comparison) -> str:
    """Return a comparison as a self-contained page; every text is escaped."""
    shown = comparison_table(found)
    others = _columns(shown, _MOST_COLUMNS, len(shown.heads))
    return template("compare.html").render(
        title=found.title,
        sweep=found.sweep,
        summary=summary_of(found),
        tone=_tone(found.rows),
        warnings=found.warnings,
        headline=found.headline,
        best_link=quote(f"{found.best_run}/report.html") if found.best_run else "",
        failures=failures_of(found),
        table=_columns(shown, 0, _MOST_COLUMNS),
        others=others if len(others.heads) > 1 else None,
        caption=caption_of(found),
        plots=plots_of(found),
        slices=compared_slices_table(found),
        deltas=delta_table(found),
        settings=None if found.sweep else settings_table(found),
        reports=list(_reports(found)),
    )


def _columns(table: Table, begin: int, end: int) -> Table:
    """Return some columns of a table behind its first one."""
    first = max(begin, 1)
    rows = tuple((row[0], *row[first:end]) for row in table.rows)
    return Table((table.heads[0], *table.heads[first:end]), rows)


def plots_of(found: Comparison) -> Plots | None:
    """Return the plots of all fronts; None where no two figures can be drawn."""
    if not found.fronts:
        return None
    order = [found.fronts[0].y, *(name for f in found.fronts for name in (f.x, f.y))]
    figures = list(dict.fromkeys(order))
    numbers = {name: number for number, name in enumerate(figures)}
    drawn = tuple(Chosen(numbers[f.x], numbers[f.y], compared_plot(found, f)) for f in found.fronts)
    known = {frozenset((one.x, one.y)) for one in drawn}
    everything = range(len(figures))
    without = tuple((x, y) for x in everything for y in everything if {x, y} not in known)
    first = found.fronts[0]
    choices = (Choice(n, name, _words(name)) for n, name in enumerate(figures))
    return Plots(tuple(choices), numbers[first.x], numbers[first.y], drawn, without)


def _words(name: str) -> str:
    return name if figure_of(name).group == "metrics" else name.replace("_", " ")


def _tone(rows: Sequence[ComparedRow]) -> str:
    tones = {_TONES.get(row.status, "plain") for row in rows}
    return next((tone for tone in ("fail", "warn", "plain", "pass") if tone in tones), "plain")


def _reports(found: Comparison) -> Iterator[tuple[str, str, str]]:
    """Yield name, address of the report, and outcome, of each run."""
    for one in runs_of(found):
        link = quote(f"{one.place}/report.html", errors="replace") if one.has_report else ""
        yield one.name, link, STATUS[one.status]
