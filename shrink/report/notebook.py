"""What a notebook shows of a run or of a comparison: a fragment, no page."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from shrink.contract.comparison import Comparison
from shrink.contract.report import Report
from shrink.report.comparison import HTML_NAME, caption_of, comparison_table, summary_of
from shrink.report.content import Table, caption, columns, errors_of, filled_cells, warnings_of
from shrink.report.gate_lines import gate_lines, missed_sentences
from shrink.report.headline import tone, verdict
from shrink.report.html import template

_COLUMNS = 10
_COLOURS = {"good": "#1a7f37", "bad": "#cf222e", "careful": "#9a6700", "neutral": "inherit"}


def notebook_html(report: Report, folder: Path) -> str:
    """Return a run's verdict, warnings, table of stages and gates as a fragment of HTML.

    Args:
        report: of the run.
        folder: that its page is in, or a file that is all of it.
    """
    heads, *rows = zip(*filled_cells(columns(report), report)[:_COLUMNS], strict=True)
    page = folder / "report.html"
    return template("notebook.html").render(
        title=f"{report.recipe.name}: {verdict(report)}",
        colour=_COLOURS[tone(report)],
        sentences=missed_sentences(report),
        warnings=[warning.text() for warning in warnings_of(report)],
        errors=[f"{stage}: {message}" for stage, message, _ in errors_of(report)],
        table=Table(heads, tuple(rows), caption=caption(report)),
        gates=[f"{one.mark} {one.name} {one.comparison}" for one in gate_lines(report)],
        page=str(page) if page.is_file() else None,
        link=quote(str(page)),
    )


def notebook_comparison_html(found: Comparison, folder: Path | None) -> str:
    """Return a comparison's table as a fragment of HTML.

    Args:
        found: the comparison.
        folder: that its page is in; None without one.
    """
    shown = comparison_table(found)
    page = None if folder is None else folder / HTML_NAME
    return template("notebook.html").render(
        title=f"{found.title}: {summary_of(found)}",
        colour=_COLOURS["neutral"],
        sentences=[],
        warnings=found.warnings,
        errors=[],
        table=Table(shown.heads, shown.rows, caption=caption_of(found)),
        gates=[],
        page=None if page is None else str(page),
        link=None if page is None else quote(str(page)),
    )
