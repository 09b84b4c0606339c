"""The page of a report: its sections, for the terminal, Markdown, HTML and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from shrink.base.figures import MEMORY_BARS, MORE_COLUMNS, PICTURE
from shrink.contract.codec import to_plain
from shrink.contract.report import Report, Stage
from shrink.contract.slices import BY_CLASS
from shrink.report import page
from shrink.report.content import (
    Column,
    artifact_paths,
    cached_lines,
    change_cell,
    change_word,
    columns,
    environment_of,
    errors_of,
    fact_text,
    facts_of,
    figure_column,
    grouped_skips,
    main_metric,
    metric_head,
    metrics_of,
    notes_of,
    stage_table,
    training_notes,
    warnings_of,
)
from shrink.report.gate_lines import gate_lines, missed_sentences
from shrink.report.headline import (
    ending,
    headlines,
    origin_sentences,
    tone,
    verdict,
)
from shrink.report.memory_map import memory_map_plots, memory_map_sentences
from shrink.report.page import (
    Alert,
    Beside,
    Block,
    Code,
    Facts,
    Fold,
    Gates,
    Legend,
    Lines,
    Medium,
    Page,
    Table,
    Tiles,
    capital,
    sections_of,
)
from shrink.report.placement import placement_sentences, placement_tables
from shrink.report.plots import (
    bar_groups,
    loss_plots,
    timeline_plots,
)
from shrink.report.scatter import other_tradeoffs, tradeoff_plot
from shrink.report.slices import (
    no_loss_sentence,
    slice_lines,
    slice_sentence,
    slice_table,
    sliced_results,
)
from shrink.report.svg import Plot
from shrink.report.tables import (
    audit_sentences,
    confusion_tables,
    control_tables,
    layer_tables,
    operator_tables,
    output_tables,
    sensitivity_tables,
)

if TYPE_CHECKING:
    from rich.console import Console

HTML_NAME = "report.html"
_MOST_SLICES = {"terminal": 3, "markdown": 10, "html": 40, "notebook": 0}
_NOTEBOOK_COLUMNS = 10
_LONGEST_RECIPE = 200_000
_MOST_ROWS = 2_000
"""Rows of long tables: what a page of 1 MB has room for."""


def render_report(
    report: Report,
    console: Console,
    run_folder: Path | None = None,
    *,
    with_errors: bool = True,
    with_notes: bool = False,
) -> None:
    """Print a report: the table of stages, gates, and last the artifact's path.

    Warnings are not printed: they are for stderr, as is the error that ends a command.

    Args:
        report: as `build_report` or `read_report` returns it.
        console: a rich console; its width and encoding are kept to.
        run_folder: put before the artifact's path.
        with_errors: whether to print why stages failed.
        with_notes: whether to print the notes, and not only how many there are.
    """
    shown = report_page(
        report, "terminal", run_folder, with_errors=with_errors, with_notes=with_notes
    )
    page.print_page(shown, console)


def render_markdown(report: Report, most_columns: int | None = None) -> str:
    """Return a report as Markdown, with at most so many columns in the table of stages."""
    return page.to_markdown(report_page(report, "markdown", most_columns=most_columns))


def render_html(report: Report) -> str:
    """Return a report as a self-contained HTML page of at most about 1 MB."""
    return page.to_html(report_page(report, "html"))


def notebook_html(report: Report, folder: Path) -> str:
    """Return a run's verdict, warnings, table of stages and gates as a fragment of HTML.

    Args:
        report: of the run.
        folder: that its page is in, or a file that is all of it.
    """
    path = folder / HTML_NAME
    shown = report_page(report, "notebook", most_columns=_NOTEBOOK_COLUMNS)
    return page.to_fragment(shown, str(path) if path.is_file() else "")


def report_page(
    report: Report,
    medium: Medium,
    run_folder: Path | None = None,
    *,
    most_columns: int | None = None,
    with_errors: bool = True,
    with_notes: bool = True,
) -> Page:
    """Return the page of a report; parameters are those of the functions above."""
    verb = "was stopped" if ending(report) == "interrupted" else "failed"
    errors = [Alert("bad", f"{s} {verb}", text, hint) for s, text, hint in errors_of(report)]
    warnings = [
        Alert(
            "careful", "Warning", f"{w.stage}: {w.message}" if w.stage else w.message, w.hint or ""
        )
        for w in warnings_of(report)
    ]
    times = [stage.measured.at or "" for stage in report.stages if stage.measured]
    day = max(times, default="").partition("T")[0]
    lead = missed_sentences(report)
    if medium == "terminal":
        lead = [*lead, *origin_sentences(report)]
    return Page(
        kicker=f"shrink report · {day}" if day else "shrink report",
        title=report.recipe.name,
        verdict=verdict(report),
        tone=tone(report),
        sections=sections_of(_blocks(report, medium, most_columns, with_notes)),
        lead=tuple(lead),
        alerts=(*(errors if with_errors else []), *warnings),
        files=tuple(_files(report, run_folder)) if medium == "terminal" else (),
    )


def _files(report: Report, run_folder: Path | None) -> Iterator[str]:
    """Yield where the page is, and last the result."""
    if run_folder is not None:
        yield f"report: {run_folder / HTML_NAME}"
    unfinished = any(stage.status in ("failed", "skipped") for stage in report.stages)
    for path in artifact_paths(report, run_folder):
        # Half a run has no result: its last artifact is only what the next try continues from.
        yield f"so far: {path}" if unfinished else path


def _blocks(
    report: Report, medium: Medium, most_columns: int | None, with_notes: bool
) -> Iterator[tuple[str, Iterable[Block]]]:
    page_only, document = medium == "html", medium in ("markdown", "html")
    if page_only:
        yield from _first_screen(report)
    elif document:
        yield "", [headline.sentence for headline in headlines(report)]
    gates = ("Gates" if document else "gates", [_gates(report)])
    if document:
        yield gates
    yield "Stages" if document else "", _stages(report, medium, most_columns)
    for table in output_tables(report) if medium != "notebook" else ():
        yield table.title, [table]
    if not document:
        yield gates
    if medium == "notebook":
        return
    yield "Slices" if document else "", _slices(report, medium)
    if page_only:
        yield "Memory", [Beside(tuple(bar_groups(report, MEMORY_BARS))), _timelines(report)]
    if document:
        maps = Lines(tuple(memory_map_sentences(report)))
        plots = memory_map_plots(report) if page_only else []
        yield "Memory by operator", _memory_maps(plots) if page_only else [maps]
        tables = placement_tables(report) if page_only else []
        yield "Where operators run", [Lines(tuple(placement_sentences(report))), *tables]
    if page_only:
        yield from _inside(report)
    if document:
        yield "Confusion matrix", _confusion(report)
    yield "Skipped" if document else "skipped", [Lines(tuple(grouped_skips(report)))]
    routine = Lines(tuple(notes_of(report, routine=True)))
    telling = Lines((*notes_of(report, routine=False), *training_notes(report)))
    if document:
        yield "Notes", [telling]
        yield "", [Fold("How figures were measured", (routine,))]
    elif with_notes:
        yield "notes", [Lines(telling.items + routine.items)]
    elif count := len(telling.items + routine.items):
        yield "", [f"{count} note{'s' * (count > 1)}: add --notes, or open {HTML_NAME}"]
    cached = Lines(tuple(("", line) for line in cached_lines(report)))
    yield "Measured earlier" if document else "cached", [cached]
    if document:
        yield "Origin", _origin(report, page_only)


def _first_screen(report: Report) -> Iterator[tuple[str, Iterable[Block]]]:
    """Yield what got smaller and what that cost, in words, figures and pictures."""
    plot, others = tradeoff_plot(report), other_tradeoffs(report)
    costs = ", ".join(one.title.partition(" against ")[2] for one in others)
    more = Fold(f"Against {costs}", (Beside(tuple(others)),))
    against: list[tuple[str, list[Block]]] = (
        [] if plot is None else [(capital(plot.title), [plot, more])]
    )
    if len(report.finals) > 1:
        yield from against
    for headline in headlines(report):
        yield "", [headline.sentence, Tiles(headline.tiles)]
    yield "Size and memory by stage", [Beside(tuple(bar_groups(report, PICTURE)))]
    if len(report.finals) <= 1:
        yield from against


def _gates(report: Report) -> Block:
    lines = gate_lines(report)
    if lines and all(line.mark == "SKIP" for line in lines):
        count = f"{len(lines)} gates" if len(lines) > 1 else "1 gate"
        reasons = "; ".join(dict.fromkeys(line.reason for line in lines))
        return Lines((("", f"{count} not checked: {reasons}"),))
    return Gates(tuple(lines))


def _stages(report: Report, medium: Medium, most_columns: int | None) -> Iterator[Block]:
    if not report.stages:
        yield "No stage ran." if medium == "html" else ""
        return
    shown = columns(report)
    if medium == "html":
        yield stage_table(report, shown, report.stages, titled=True)
        more = [shown[0], *more_columns(report)]
        yield Fold("All other figures", (stage_table(report, more, report.stages, titled=True),))
        return
    if medium == "markdown":
        shown = [*shown, *more_columns(report)]
    table = stage_table(report, shown, report.stages)
    yield table if most_columns is None else table.columns(1, most_columns)


def more_columns(report: Report) -> list[Column[Stage]]:
    """Return what a terminal has no room for."""
    first: list[Column[Stage]] = []
    for name in metrics_of(report):
        if name != main_metric(report):
            head = f"{metric_head(name)} {change_word(name)}"
            first += [figure_column(name), Column(head, change_cell(report, name))]
    return [*first, *map(figure_column, MORE_COLUMNS)]


def _slices(report: Report, medium: Medium) -> Iterator[Block]:
    """Yield the largest losses; one sentence where no loss is proven."""
    for stage in sliced_results(report):
        table = slice_table(report, stage, _MOST_SLICES[medium])
        if any(line.is_proven_loss for line in slice_lines(stage)):
            yield from (slice_sentence(stage), table)
        elif medium == "html" or any(slicing.by != BY_CLASS for slicing in stage.slices):
            yield f"{stage.name}: {no_loss_sentence(stage)}"
            yield Fold(table.title, (table,))


def _timelines(report: Report) -> Block:
    explanation = (
        "By optimizer update. Device: the most that its allocator held since the last value. "
        "Process: resident memory."
    )
    plots = timeline_plots(report)
    blocks: tuple[Block, ...] = (Beside(tuple(plots)), explanation) if plots else ()
    return Fold("Memory over the course of each training", blocks)


def _memory_maps(plots: Sequence[Plot]) -> list[Block]:
    if not plots:
        return []
    explanation = "Bytes of activations that this operator or a later one needs. "
    return [explanation, Legend("before", "after"), Beside(tuple(plots))]


def _inside(report: Report) -> Iterator[tuple[str, Iterable[Block]]]:
    """Yield how stages trained, and what is inside of models and artifacts."""
    losses = loss_plots(report)
    legend = [Legend("validation", "training")] if losses else []
    yield "Loss by epoch", [*legend, Beside(tuple(losses))]
    controls = control_tables(report)
    explanation = (
        "The same student, trained for as many updates with and without its teacher, on the test "
        "examples. Differences have a 95 % interval; those of fractions are percentage points."
    )
    yield "Effect of the teacher", [explanation if controls else "", *controls]
    yield "Sensitivity to pruning", cut(sensitivity_tables(report))
    yield "Layers", cut(layer_tables(report))
    sentences = Lines(tuple(audit_sentences(report)))
    yield "Operators and quantization error", [sentences, *cut(operator_tables(report))]


def cut(tables: Sequence[Table], most: int = _MOST_ROWS) -> list[Table]:
    """Return tables with at most so many rows together; the caption says what was cut."""
    room = most // max(1, len(tables))
    return [
        replace(
            one,
            rows=one.rows[:room],
            caption=f"{one.caption} The first {room} of {len(one.rows)} rows; all in report.json.",
        )
        if len(one.rows) > room
        else one
        for one in tables
    ]


def _confusion(report: Report) -> list[Block]:
    """Return the matrix of the first result; those of other stages are folded."""
    finals = [stage.name for stage in report.ends]
    tables = confusion_tables(report)
    first = [one for one in tables if one.title.partition(":")[0] in finals][:1]
    rest = tuple(one for one in tables if one not in first)
    return [*first, Fold("Other stages", rest)]


def _origin(report: Report, is_page: bool) -> Iterator[Block]:
    if report.command and is_page:
        yield Code(report.command, "Command")
    paths = artifact_paths(report)
    links = {path: link for path in paths if (link := artifact_link(path))}
    yield Lines(tuple(("", path) for path in paths), links)
    environment = Facts(tuple(environment_of(report)), "Environment")
    if not is_page:
        yield environment
        return
    data = Facts(tuple(facts_of(to_plain(report.data)) if report.data else ()), "Data")
    source = Facts(tuple(facts_of(to_plain(report.source)) if report.source else ()), "Source")
    stages_of: dict[str, list[str]] = {}
    for stage in report.stages:
        if stage.extra.task is not None:
            stages_of.setdefault(fact_text(to_plain(stage.extra.task)), []).append(stage.name)
    task = Facts(tuple((", ".join(names), text) for text, names in stages_of.items()), "Task")
    yield Fold("Data, task, environment", (data, task, source, environment))
    if report.resolved_recipe:
        yield Fold("Resolved recipe", (Code(report.resolved_recipe[:_LONGEST_RECIPE]),))


def artifact_link(path: str) -> str:
    """Return the address of an artifact beside the page, or nothing for a path elsewhere."""
    parts = path.split("/")
    return "" if path.startswith("/") or ".." in parts else quote(path, errors="replace")
