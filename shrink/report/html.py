"""The report as one HTML file: no script, no network, any width, light, dark and paper."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from shrink.base.errors import listed
from shrink.base.figures import FIGURES
from shrink.contract.details import Task
from shrink.contract.report import DataSet, Report, Stage
from shrink.report.confusion import confusion_tables
from shrink.report.content import (
    NULL,
    Column,
    Table,
    artifact_paths,
    cached_lines,
    caption,
    columns,
    environment_of,
    errors_of,
    grouped_skips,
    routine_notes,
    telling_notes,
    warnings_of,
)
from shrink.report.gate_lines import gate_lines, missed_sentences
from shrink.report.headline import ending, headlines, results_without_headline, tone, verdict
from shrink.report.memory_map import memory_map_plots
from shrink.report.placement import placement_tables
from shrink.report.plots import (
    error_groups,
    loss_plots,
    memory_groups,
    sensitivity_plots,
    timeline_plots,
)
from shrink.report.scatter import other_tradeoffs, tradeoff_plot
from shrink.report.slices import slice_tables
from shrink.report.tables import (
    audit_sentences,
    control_tables,
    layer_tables,
    operator_tables,
    output_tables,
)
from shrink.report.text import more_columns

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


Facts = list[tuple[str, str]]
_SPLITS = {"train": "training", "validation": "validation", "test": "test"}
_MOST_CLASSES = 20


def measured_on(report: Report) -> str:
    """Return the day on which the report's last stage was measured, or nothing where unknown."""
    times = [stage.measured.at or "" for stage in report.stages if stage.measured]
    return max(times, default="").partition("T")[0]


def artifact_link(path: str) -> str:
    """Return the address of an artifact beside the page, or nothing for a path elsewhere."""
    parts = path.split("/")
    return "" if path.startswith("/") or ".." in parts else quote(path, errors="replace")


def origin(report: Report) -> list[tuple[str, Facts]]:
    """Return headings with facts on the data, the task and the recipe, as far as they are known.

    Reports of earlier versions have none of them.
    """
    commit = report.source.commit if report.source else None
    found = [
        ("Data", _data(report)),
        ("Task", _task(report)),
        ("Source", ([] if commit is None else [("commit", commit)])),
    ]
    return [(title, facts) for title, facts in found if facts]


def _data(report: Report) -> Facts:
    data = report.data or DataSet()
    counts = data.examples or {}
    facts = [("source", data.source), ("path", data.path)]
    facts += [(f"{word} examples", _count(counts.get(key))) for key, word in _SPLITS.items()]
    facts += [("classes", _classes(data.classes)), ("fingerprint", data.fingerprint)]
    return [(name, value) for name, value in facts if value is not None]


def _task(report: Report) -> Facts:
    """Return how outputs were read, per stage where stages differ."""
    stages_of: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for stage in report.stages:
        if stage.told.task is not None:
            stages_of.setdefault(tuple(_task_facts(stage.told.task)), []).append(stage.name)
    if len(stages_of) == 1:
        return list(next(iter(stages_of)))
    named = stages_of.items()
    return [(", ".join(names), "; ".join(": ".join(f) for f in facts)) for facts, names in named]


def _task_facts(task: Task) -> Iterable[tuple[str, str]]:
    """Yield loss and form of each output, then the metrics."""
    for output in task.outputs:
        of = f"{output.name}: " if len(task.outputs) > 1 else ""
        if output.loss is not None:
            yield f"{of}loss", output.loss
        if output.from_logits is not None:
            yield f"{of}output is logits", "yes" if output.from_logits else "no"
    if task.metrics is not None:
        yield "metrics", ", ".join(task.metrics) or "none"
    if task.monitor is not None:
        yield "monitor", task.monitor


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _classes(value: Sequence[str] | None) -> str | None:
    if not value:
        return None
    return listed([f"{index} {name}" for index, name in enumerate(value)], _MOST_CLASSES)


TEMPLATES = Path(__file__).parent / "templates"
_MOST_ITEMS = 200
_LONGEST_TEXT = 2_000
_CODE = re.compile(r"`([^`\n]+)`")
_LONGEST_RECIPE = 200_000


def render_html(report: Report) -> str:
    """Return a report as a self-contained HTML page of at most about 1 MB.

    Every text of the report is escaped: by the template, and by `svg` inside the plots. Long lists
    and texts are cut, and say so.
    """
    stages = report.stages
    found = [c for c in columns(report) if not stages or {c.cell(s) for s in stages} != {NULL}]
    rest = results_without_headline(report)
    return template("report.html").render(
        report=report,
        name=report.recipe.name,
        verdict=verdict(report),
        tone=tone(report),
        ending=ending(report),
        missed=missed_sentences(report),
        warnings=warnings_of(report),
        headlines=headlines(report),
        more_results=(_rows(found, rest) if rest else None),
        several=len(report.finals) > 1,
        errors=errors_of(report),
        gates=gate_lines(report),
        stages=_table(found, report),
        figures=_table([found[0], *more_columns(report)], report),
        caption=caption(report),
        tradeoff=tradeoff_plot(report),
        other_tradeoffs=other_tradeoffs(report),
        memory=memory_groups(report),
        timelines=timeline_plots(report),
        memory_maps=memory_map_plots(report),
        placements=placement_tables(report),
        losses=loss_plots(report),
        controls=control_tables(report),
        slices=slice_tables(report),
        outputs=output_tables(report),
        confusions=confusion_tables(report),
        sensitivity=sensitivity_plots(report),
        layers=layer_tables(report),
        operators=operator_tables(report),
        errors_by_operator=error_groups(report),
        audits=list(audit_sentences(report)),
        skipped=_marked(_cut(grouped_skips(report))),
        notes=_marked(_cut(telling_notes(report))),
        routine=_marked(_cut(routine_notes(report))),
        cached=cached_lines(report),
        artifacts=[(path, artifact_link(path)) for path in artifact_paths(report)],
        origin=origin(report),
        date=measured_on(report),
        environment=[
            (key, "unknown" if text is None else text) for key, text in environment_of(report)
        ],
        command=report.command,
        recipe=(report.resolved_recipe or "")[:_LONGEST_RECIPE],
    )


@functools.cache
def template(name: str) -> Template:
    """Return a page's template, in which every text is escaped and cleaned."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.finalize = _printable
    return environment.get_template(name)


def _printable(value: object) -> object:
    """Return text without the characters that no HTML document may hold; markup stays as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in value
    )


def _table(found: Sequence[Column], report: Report) -> Table:
    return _rows(found, report.stages)


def _rows(found: Sequence[Column], stages: Sequence[Stage]) -> Table:
    rows = (tuple(column.cell(stage) for column in found) for stage in stages)
    titles = {figure.head: figure.title for figure in FIGURES.values()}
    return Table(tuple(titles.get(c.head, c.head) for c in found), tuple(rows))


def _cut(items: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return no more items, and no longer ones, than a reader would look through."""
    shown = [(name, _short(text)) for name, text in items[:_MOST_ITEMS]]
    rest = len(items) - len(shown)
    return [*shown, ("and", f"{rest} more in report.json")] if rest else shown


def _marked(items: Sequence[tuple[str, str]]) -> list[tuple[str, Markup]]:
    """Return the items with what stands between backticks set as code; all of it is escaped."""
    from markupsafe import Markup, escape

    def marked(text: str) -> Markup:
        return Markup(_CODE.sub(r"<code>\1</code>", str(escape(_printable(text)))))

    return [(name, marked(text)) for name, text in items]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… (cut)"
