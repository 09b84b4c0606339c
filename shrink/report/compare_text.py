"""A comparison as text: on a terminal, and in GitHub flavoured Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from shrink.contract.comparison import Comparison
from shrink.report.compare_table import (
    caption_of,
    comparison_table,
    failures_of,
    front_sentence,
    settings_table,
    summary_of,
)
from shrink.report.slices import compared_slices_table
from shrink.report.text import Printer, escape, table

if TYPE_CHECKING:
    from rich.console import Console

_LONGEST_SETTINGS = 60
_MOST_SLICES = 20


def render_comparison_terminal(found: Comparison, console: Console) -> None:
    """Print a comparison; warnings are not printed, they are for stderr."""
    printer = Printer(console)
    printer.wrapped(f"{found.title}: {summary_of(found)}", "", "bold")
    printer.line("")
    shown = comparison_table(found)
    cells = [list(column) for column in zip(shown.heads, *shown.rows, strict=True)]
    count = printer.table(cells, left=2, longest=_LONGEST_SETTINGS)
    printer.wrapped(caption_of(found), "", "dim")
    if count < len(cells):
        missing = ", ".join(column[0] for column in cells[count:])
        printer.wrapped(f"more in compare.html: {missing}", "", "dim")
    printer.line("")
    for front in found.fronts[:1]:
        printer.wrapped(front_sentence(found, front), "")
        printer.line("")
    printer.section("not passed", [f"{name}: {text}" for name, text in _failures(found)])


def _failures(found: Comparison) -> list[tuple[str, str]]:
    return [
        (name, f"{text} (hint: {hint})" if hint else text)
        for name, text, hint in failures_of(found)
    ]


def render_comparison_markdown(found: Comparison) -> str:
    """Return a comparison as Markdown; every text that comes from outside is escaped."""
    parts = [f"# {escape(found.title)}: {escape(summary_of(found))}"]
    parts += [escape(line) for line in found.headline]
    if found.best_run is not None:
        parts.append(
            f"[Report of the best, on the test split]({quote(found.best_run)}/report.html)"
        )
    parts += [f"> **Warning**: {escape(text)}" for text in found.warnings]
    shown = comparison_table(found)
    parts += [table(shown.heads, shown.rows), escape(caption_of(found))]
    parts += [escape(front_sentence(found, front)) for front in found.fronts[:1]]
    if (slices := compared_slices_table(found, _MOST_SLICES)) is not None:
        parts += ["## Slices", table(slices.heads, slices.rows), escape(slices.caption)]
    if not found.sweep and (settings := settings_table(found)).rows:
        parts += ["## Settings that differ", table(settings.heads, settings.rows)]
    if failures := _failures(found):
        lines = [f"- **{escape(name)}**: {escape(text)}" for name, text in failures]
        parts += ["## Not passed", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"
