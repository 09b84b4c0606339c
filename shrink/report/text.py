"""The report as text: on a terminal, and in GitHub flavoured Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shrink.base.figures import MORE_COLUMNS, metric_figure
from shrink.contract.report import Report
from shrink.report.confusion import confusion_tables
from shrink.report.content import (
    RECIPE_HASH,
    Column,
    Table,
    artifact_paths,
    cached_lines,
    caption,
    change_cell,
    columns,
    environment_of,
    errors_of,
    figure_column,
    filled_cells,
    grouped_notes,
    grouped_skips,
    main_metric,
    metric_head,
    metrics_of,
    routine_notes,
    telling_notes,
    warnings_of,
)
from shrink.report.gate_lines import GateLine, gate_lines, missed_sentences
from shrink.report.headline import Tone, headlines, more_results, origin_sentences, tone, verdict
from shrink.report.memory_map import memory_map_sentences
from shrink.report.placement import placement_sentences
from shrink.report.slices import (
    has_news,
    slice_sentence,
    slice_table,
    slice_tables,
    sliced_results,
)
from shrink.report.tables import output_tables

if TYPE_CHECKING:
    from rich.console import Console


_LONGEST_NAME = 20
_MOST_SLICES = 3
_MOST_SLICES_IN_MARKDOWN = 10
_STYLES = {"PASS": "green", "FAIL": "bold red", "WARN": "yellow", "SKIP": "dim"}
_TONES: dict[Tone, str] = {
    "good": "bold green",
    "bad": "bold red",
    "careful": "bold yellow",
    "neutral": "bold",
}
_WIDEST = 200


def render_report(
    report: Report,
    console: Console,
    run_folder: Path | None = None,
    *,
    with_errors: bool = True,
) -> None:
    """Print a report: the table of stages, gates, notes, and last the artifact's path.

    Warnings are not printed: they are for stderr, as is the error that ends a command.

    Args:
        report: as `build_report` or `read_report` returns it.
        console: a rich console; its width and encoding are kept to.
        run_folder: put before the artifact's path.
        with_errors: whether to print why stages failed.
    """
    printer = Printer(console)
    printer.wrapped(f"{report.recipe.name}: {verdict(report)}", "", _TONES[tone(report)])
    for sentence in [*missed_sentences(report), *origin_sentences(report)]:
        printer.wrapped(sentence, "")
    printer.line("")
    if report.stages:
        filled = filled_cells(columns(report), report)
        shown = printer.table(filled, left=1)
        printer.wrapped(caption(report), "", "dim")
        peaks = [column[0] for column in filled[:shown] if column[0] in ("training", "inference")]
        if peaks:
            printer.wrapped(f"{' and '.join(peaks)}: peak memory", "", "dim")
        if shown < len(filled):
            missing = ", ".join(column[0] for column in filled[shown:])
            printer.wrapped(f"more in report.html: {missing}", "", "dim")
        printer.line("")
    for outputs in output_tables(report):
        printer.line(outputs.title, "bold")
        printer.table([*zip(outputs.heads, *outputs.rows, strict=True)], left=2)
        printer.line("")
    for stage, message, hint in errors_of(report) if with_errors else ():
        printer.section("error", [f"{stage}: {message}", *([f"hint: {hint}"] if hint else [])])
    _render_gates(gate_lines(report), printer)
    for sliced in filter(has_news, sliced_results(report)):
        slices = slice_table(report, sliced, _MOST_SLICES, "report.html")
        _render_slices(slices, slice_sentence(sliced), printer)
    printer.section("skipped", [f"{names}: {text}" for names, text in grouped_skips(report)])
    printer.section("notes", [f"{names}: {text}" for names, text in grouped_notes(report)])
    printer.section("cached", cached_lines(report))
    _render_places(report, run_folder, printer)


class Printer:
    """Prints plain lines that no terminal, encoding or layer name can spoil."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.width = min(console.width, _WIDEST)

    def line(self, text: str, style: str = "") -> None:
        """Print one line as it is."""
        from rich.text import Text

        clean = Text(printable(text, self._console.encoding), style=style, no_wrap=True)
        self._console.print(clean, soft_wrap=True)

    def wrapped(self, text: str, indent: str = "  ", style: str = "") -> None:
        """Print a text over as many lines as it needs, indented."""
        clean = printable(text, self._console.encoding)
        for line in textwrap.wrap(
            clean,
            self.width,
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_on_hyphens=False,
        ):
            self.line(line, style)

    def table(self, cells: Sequence[Sequence[str]], left: int, longest: int = _LONGEST_NAME) -> int:
        """Print as many columns as fit, and return how many.

        Args:
            cells: by column, the most important first; each begins with its head.
            left: how many columns are left aligned; the first is shortened where it is long.
            longest: letters of the first column that are shown.
        """
        shortened = [[_shortened(cell, longest) for cell in cells[0]], *cells[1:]]
        widths = [max(map(len, column)) for column in shortened]
        count, gap = fitting(widths, self.width)
        for index, row in enumerate(zip(*shortened[:count], strict=True)):
            padded = [
                cell.ljust(width) if column < left else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths[:count], strict=True))
            ]
            self.line((" " * gap).join(padded).rstrip(), "" if index else "bold")
        return count

    def section(self, title: str, texts: Sequence[str]) -> None:
        """Print a titled list and an empty line; nothing at all where there are no texts."""
        if not texts:
            return
        self.line(title, "bold")
        for text in texts:
            self.wrapped(text)
        self.line("")


def printable(text: str, encoding: str) -> str:
    """Return text without control characters and without what the encoding cannot hold.

    Layer names and messages come from files; none may move a terminal's cursor or end a run.
    """
    clean = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
    try:
        "µ".encode(encoding)
    except UnicodeEncodeError:
        clean = clean.replace("µ", "u")
    return clean.encode(encoding, "replace").decode(encoding)


def fitting(widths: Sequence[int], width: int) -> tuple[int, int]:
    """Return how many columns of these widths fit into a line, from the left, and their gap."""
    for count in range(len(widths), 1, -1):
        for gap in (2, 1):
            if sum(widths[:count]) + gap * (count - 1) <= width:
                return count, gap
    return 1, 1


def _render_slices(slices: Table, sentence: str, printer: Printer) -> None:
    """Print largest losses by slice, in few columns; the page has all of them."""
    printer.line(slices.title, "bold")
    if sentence:
        printer.wrapped(sentence, "")
    printer.table([*zip(slices.heads, *slices.rows, strict=True)], left=1)
    printer.wrapped(slices.caption, "", "dim")
    printer.line("")


def _render_places(report: Report, run_folder: Path | None, printer: Printer) -> None:
    """Print where the page is, and last the result; both are copied, and so never wrapped."""
    if run_folder is not None:
        printer.line(f"report: {run_folder / 'report.html'}", "dim")
    unfinished = any(stage.status in ("failed", "skipped") for stage in report.stages)
    for path in artifact_paths(report, run_folder):
        # Half a run has no result: its last artifact is only what the next try continues from.
        printer.line(f"so far: {path}" if unfinished else path, "" if unfinished else "bold")


def _shortened(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 3] + "..."


def _render_gates(lines: Sequence[GateLine], printer: Printer) -> None:
    if not lines:
        return
    if all(line.mark == "SKIP" for line in lines):
        count = f"{len(lines)} gates" if len(lines) > 1 else "1 gate"
        reasons = "; ".join(dict.fromkeys(line.reason for line in lines))
        printer.section("gates", [f"{count} not checked: {reasons}"])
        return
    printer.line("gates", "bold")
    longest = max(len(line.name) for line in lines)
    for line in lines:
        reason = f": {line.reason}" if line.reason else ""
        text = f"{line.mark}  {line.name:<{longest}}  {line.comparison}  {line.stage}{reason}"
        printer.wrapped(text, style=_STYLES[line.mark])
    printer.line("")


_SPECIAL = re.compile(r"([\\`*_\[\]#|~$])")
_LIST_MARK = re.compile(r"^(\s*\d*)([-+.)])(?=\s|$)")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ZERO_WIDTH_SPACE = "\u200b"


def render_markdown(report: Report, most_columns: int | None = None) -> str:
    """Return a report as Markdown; every text that comes from outside is escaped.

    Args:
        report: the report.
        most_columns: of the table of stages, the most important; all without it.
    """
    parts = [f"# {escape(report.recipe.name)}: {escape(verdict(report))}"]
    parts += map(escape, missed_sentences(report))
    parts += [f"> **Warning**: {escape(w.text())}" for w in warnings_of(report)]
    parts += [escape(h.sentence) for h in headlines(report) if h.sentence]
    parts += [escape(more)] if (more := more_results(report)) else []
    if report.stages:
        filled = filled_cells([*columns(report), *more_columns(report)], report)[:most_columns]
        heads, *rows = zip(*filled, strict=True)
        parts += [table(heads, rows), escape(caption(report))]
    for outputs in output_tables(report):
        parts += [f"## {escape(outputs.title)}", table(outputs.heads, outputs.rows)]
    parts += _confusion(report)
    parts += _section("Memory by operator", map(_named, memory_map_sentences(report)))
    parts += _section("Where operators run", map(_named, placement_sentences(report)))
    parts += _section("Errors", [_error(*error) for error in errors_of(report)])
    if report.gates:
        parts += ["## Gates", _gate_table(report)]
    for slices in slice_tables(report, _MOST_SLICES_IN_MARKDOWN):
        parts += [f"## {escape(slices.title)}", table(slices.heads, slices.rows)]
        parts.append(escape(slices.caption))
    parts += _section("Skipped", map(_named, grouped_skips(report)))
    parts += _section("Notes", map(_named, telling_notes(report)))
    parts += _section("How figures were measured", map(_named, routine_notes(report)))
    parts += _section("Cached", map(escape, cached_lines(report)))
    parts += _section("Artifacts", map(escape, artifact_paths(report)))
    parts += _section("Environment", _environment(report))
    return "\n\n".join(parts) + "\n"


def _confusion(report: Report) -> Iterator[str]:
    for one in confusion_tables(report, only_finals=True):
        yield f"## Which class was taken for which: {escape(one.title)}"
        yield table(one.heads, one.rows)
        yield escape(one.caption)


def _environment(report: Report) -> Iterator[str]:
    for name, text in environment_of(report):
        if text is not None or name != RECIPE_HASH:
            yield f"{escape(name)}: {escape(str(text))}"


def escape(text: str) -> str:
    """Return text that GitHub shows as it is: no markup, HTML, table cell, mention or reference.

    A zero-width space parts `@` and `#` from what follows: entities and backslashes are gone once
    the text is rendered, and mentions are looked for in rendered text.
    """
    line = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
    line = _SPECIAL.sub(r"\\\1", line.translate(_HTML))
    line = _LIST_MARK.sub(r"\1\\\2", line)
    return line.replace("@", f"@{_ZERO_WIDTH_SPACE}").replace("\\#", f"\\#{_ZERO_WIDTH_SPACE}")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, the first column left, all others right aligned; cells escaped."""
    lines = [[escape(head) for head in heads], ["---", *["---:"] * (len(heads) - 1)]]
    lines += [[escape(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def more_columns(report: Report) -> list[Column]:
    """Return what a terminal has no room for."""
    first = []
    for name in metrics_of(report):
        if name != main_metric(report):
            unit = "points" if metric_figure(name).unit == "fraction" else "change"
            first.append(figure_column(name))
            first.append(Column(f"{metric_head(name)} {unit}", change_cell(report, name)))
    return [
        *first,
        *map(figure_column, MORE_COLUMNS),
    ]


def _gate_table(report: Report) -> str:
    lines = gate_lines(report)
    count = 5 if any(line.reason for line in lines) else 4
    rows = [
        (line.mark, line.name, line.comparison, line.stage, line.reason)[:count] for line in lines
    ]
    return table(("result", "gate", "value and limit", "stage", "reason")[:count], rows)


def _section(title: str, items: Iterable[str]) -> list[str]:
    lines = [f"- {item}" for item in items]
    return [f"## {title}", "\n".join(lines)] if lines else []


def _named(pair: tuple[str, str]) -> str:
    return f"**{escape(pair[0])}**: {escape(pair[1])}"


def _error(stage: str, message: str, hint: str) -> str:
    text = f"**{escape(stage)}**: {escape(message)}"
    return f"{text} (hint: {escape(hint)})" if hint else text
