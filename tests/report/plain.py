"""What makes and reads reports, with report.json in place of the typed one.

Tests look into it and change it by hand: what they hand over goes through the decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from shrink.contract import report_file, usage
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.report import RecipeName, Report, Stage
from shrink.recipe import recipe_diff
from shrink.report import (
    ci,
    content,
    diff,
    gates,
    headline,
    memory_map,
    model,
    plots,
    scatter,
    sections,
    tables,
)
from shrink.report import gate_lines as lines
from shrink.report import (
    run_files as rendered,
)
from shrink.report.page import template
from shrink.report.svg import Plot

P = ParamSpec("P")
T = TypeVar("T")
Plain = Mapping[str, Any]


def reading(function: Callable[Concatenate[Report, P], T]) -> Callable[Concatenate[Plain, P], T]:
    """A function of a report as one of report.json."""

    def read(document: Plain, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(report_file.report_of(document), *args, **kwargs)

    return read


render_report = reading(sections.render_report)
render_markdown = reading(sections.render_markdown)
render_html = reading(sections.render_html)
render_junit = reading(ci.render_junit)
render_card = reading(rendered.render_card)
recipe_of = reading(content.recipe_of)
publish = reading(ci.publish)
output_lines = reading(ci.output_lines)
gate_annotations = reading(ci.gate_annotations)
warnings_of = reading(content.warnings_of)
flat_metrics = reading(content.flat_metrics)
gate_lines = reading(lines.gate_lines)
missed_sentences = reading(lines.missed_sentences)
ending = reading(headline.ending)
verdict = reading(headline.verdict)
headlines = reading(headline.headlines)
control_tables = reading(tables.control_tables)
layer_tables = reading(tables.layer_tables)
operator_tables = reading(tables.operator_tables)
audit_sentences = reading(tables.audit_sentences)
memory_map_plots = reading(memory_map.memory_map_plots)
loss_plots = reading(plots.loss_plots)
bar_groups = reading(plots.bar_groups)
sensitivity_tables = reading(tables.sensitivity_tables)
tradeoff_plot = reading(scatter.tradeoff_plot)


def render(document: Plain) -> dict[str, str]:
    return rendered.render(report_file.report_of(document), {})


def summary(document: Plain) -> str:
    return render_markdown(document, most_columns=ci.SUMMARY_COLUMNS)


def markup(plot: Plot) -> str:
    """A plot as the page draws it."""
    return str(getattr(template("plot.html").module, "draw")(plot))  # noqa: B009


def metadata(document: Plain, digest: str) -> Any:
    return usage.metadata(report_file.report_of(document), digest, {})


def build_report(
    *, recipe_name: str, recipe_sha256: str, outcomes: Any, gates: Any, finals: Any, **settings: Any
) -> dict[str, Any]:
    compared = {key: settings.pop(key, None) for key in ("saved", "planned_finals", "chain")}
    run = Report(
        passed=True,
        recipe=RecipeName(name=recipe_name, sha256=recipe_sha256),
        finals=tuple(finals),
        stages=(),
        gates=(),
        warnings=tuple(settings.pop("warnings", ())),
        **settings,
    )
    return dict(to_plain(model.build_report(run, outcomes, gates, **compared)))


def read_report(path: Path) -> dict[str, Any]:
    return dict(to_plain(report_file.read_report(path)))


def shape_problem(document: Plain) -> str | None:
    """What is wrong in a document, or None."""
    try:
        report_file.report_of(document)
    except ValueError as error:
        return str(error)
    return None


def diff_reports(a: Plain, b: Plain, *changes: Any) -> dict[str, Any]:
    typed = [from_plain(tuple[diff.RecipeChange, ...], each) for each in changes]
    found = diff.diff_reports(report_file.report_of(a), report_file.report_of(b), *typed)
    return dict(to_plain(found))


def render_diff_markdown(document: Plain) -> str:
    return diff.render_diff_markdown(from_plain(diff.Changes, document))


def render_diff_terminal(document: Plain, console: Any) -> None:
    diff.render_diff_terminal(from_plain(diff.Changes, document), console)


def recipe_changes(a: Plain, b: Plain) -> list[dict[str, str]]:
    found = recipe_diff.recipe_changes(report_file.report_of(a), report_file.report_of(b))
    return [dict(to_plain(one)) for one in found]


def change_lines(changes: list[dict[str, str]]) -> list[str]:
    return diff.change_lines(from_plain(tuple[diff.RecipeChange, ...], changes))


def check_gates(
    stages: list[dict[str, Any]], limits: Any, saved: Any = None, **settings: Any
) -> list[dict[str, Any]]:
    read = from_plain(tuple[Stage, ...], stages)
    then = {name: report_file.report_of(one) for name, one in (saved or {}).items()}
    return [to_plain(result) for result in gates.gate_results(read, limits, saved=then, **settings)]
