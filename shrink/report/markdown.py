"""The report as GitHub flavoured Markdown, for `report.md`, pull requests and CI summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shrink.base.figures import metric_figure
from shrink.contract.codec import to_plain
from shrink.contract.report import Report
from shrink.report.content import (
    NULL,
    Column,
    artifact_paths,
    cached_lines,
    caption,
    change_cell,
    columns,
    errors_of,
    figure_column,
    grouped_skips,
    main_metric,
    metric_head,
    metrics_of,
    routine_notes,
    telling_notes,
    warnings_of,
)
from shrink.report.gate_lines import gate_lines, missed_sentences
from shrink.report.headline import headlines, more_results
from shrink.report.verdict import verdict

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
        parts += [_stage_table(report, most_columns), escape(caption(report))]
    parts += _section("Errors", [_error(*error) for error in errors_of(report)])
    if report.gates:
        parts += ["## Gates", _gate_table(report)]
    parts += _section("Skipped", map(_named, grouped_skips(report)))
    parts += _section("Notes", map(_named, telling_notes(report)))
    parts += _section("How figures were measured", map(_named, routine_notes(report)))
    parts += _section("Cached", map(escape, cached_lines(report)))
    parts += _section("Artifacts", map(escape, artifact_paths(report)))
    parts += _section("Environment", _environment(report))
    return "\n\n".join(parts) + "\n"


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


def _stage_table(report: Report, most_columns: int | None) -> str:
    """Return the table of stages, without columns that hold no value."""
    cells = [
        [column.head, *map(column.cell, report.stages)]
        for column in [*columns(report), *more_columns(report)]
    ]
    filled = [column for column in cells if set(column[1:]) != {NULL}][:most_columns]
    heads, *rows = zip(*filled, strict=True)
    return table(heads, rows)


def more_columns(report: Report) -> list[Column]:
    """Return what a terminal has no room for."""
    found = []
    for name in metrics_of(report):
        if name != main_metric(report):
            unit = "points" if metric_figure(name).unit == "fraction" else "change"
            found.append(figure_column(metric_head(name), name))
            found.append(Column(f"{metric_head(name)} {unit}", change_cell(report, name)))
    return [
        *found,
        figure_column("file", "file_bytes"),
        figure_column("nonzero", "nonzero_parameters"),
        figure_column("predicted training", "training_peak_predicted_bytes"),
        figure_column("training host", "training_host_peak_bytes"),
        figure_column("p90", "p90_ms"),
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


def _environment(report: Report) -> list[str]:
    lines = [f"baseline: {escape(report.baseline)}"]
    if report.recipe.sha256 is not None:
        lines.append(f"recipe sha256: {escape(report.recipe.sha256)}")
    environment = to_plain(report.environment)
    return lines + [f"{escape(key)}: {_value(value)}" for key, value in environment.items()]


def _value(value: object) -> str:
    if isinstance(value, list):
        return escape(", ".join(map(str, value)) or "none")
    if isinstance(value, dict):
        return escape(", ".join(f"{key} {item}" for key, item in value.items()) or "none")
    return escape(str(value))
