"""What pages show of a report: columns, cells, notes and the main metric."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from shrink.base.errors import VALIDATION_FIGURES, RecipeError, ReportWarning, distinct, listed
from shrink.base.figures import (
    FIGURES,
    LOSS,
    STAGE_COLUMNS,
    figure_of,
    format_change,
    format_ratio,
    format_value,
    metric_figure,
)
from shrink.base.foreign import Json
from shrink.base.measurement import Note
from shrink.contract.codec import to_plain
from shrink.contract.comparison import Spread
from shrink.contract.details import FigureDelta, Limits, MetricDelta, Training
from shrink.contract.report import Failure, MeasuredAt, Report, Stage
from shrink.report.page import NULL, Table

Row = TypeVar("Row")
_LAYERS_LISTED = 4
_MOST_LISTED = 20
_NO_REASON = "no reason was recorded"
_TRAINING_PEAK = "training_peak_bytes"


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table: a short head, the cell of a row, and a longer head."""

    head: str
    cell: Callable[[Row], str]
    title: str = ""


def filled_table(columns: Sequence[Column[Row]], rows: Sequence[Row], *, titled: bool) -> Table:
    """Return a table of those columns that hold a value for some row.

    Args:
        columns: the most important first; the first names a row.
        rows: at least one.
        titled: whether titles are the heads, where a page has room for them.
    """
    cells = [[c.title if titled and c.title else c.head, *map(c.cell, rows)] for c in columns]
    filled = [cells[0], *(one for one in cells[1:] if set(one[1:]) - {NULL, ""})]
    heads, *texts = zip(*filled, strict=True)
    return Table(heads, tuple(texts))


def stage_table(
    report: Report,
    columns: Sequence[Column[Stage]],
    stages: Sequence[Stage],
    *,
    titled: bool = False,
) -> Table:
    """Return the table of some stages of a report."""
    table = filled_table(columns, stages, titled=titled)
    peaks = [] if titled else [head for head in table.heads if head in ("training", "inference")]
    peak_text = f"; {' and '.join(peaks)}: peak memory" if peaks else ""
    measured = set(table.heads) - {"stage", "status", "time"}
    text = caption(report) + peak_text if measured else ""
    return replace(table, caption=text, longest=20)


def main_metric(report: Report) -> str | None:
    """Return the metric to show first: the first that is not the loss, else the loss."""
    names = metrics_of(report)
    return next((name for name in names if name != LOSS), names[0] if names else None)


def metrics_of(report: Report) -> list[str]:
    """Return the names of all metrics of all stages, in the report's order."""
    return list(dict.fromkeys(name for s in report.stages for name in s.metrics or ()))


def warnings_of(report: Report) -> list[ReportWarning]:
    """Return the warnings of a report, each once."""
    return distinct(report.warnings)


def columns(report: Report) -> list[Column[Stage]]:
    """Return the columns, the most important first."""
    metric = main_metric(report)
    first: list[Column[Stage]] = [Column("stage", lambda stage: stage.name)]
    if metric is not None:
        first += [
            Column(metric_head(metric), _metric_cell(metric)),
            Column(f"{change_word(metric)} [95 %]", change_cell(report, metric)),
        ]
    else:
        first.append(Column("status", status_word))
    return [
        *first,
        figure_column("tflite_bytes"),
        Column("ratio", lambda stage: format_ratio(stage.ratio("tflite_bytes"))),
        *(figure_column(name) for name in STAGE_COLUMNS[1:]),
        Column("time", lambda s: NULL if s.duration_s is None else format_value(s.duration_s, "s")),
    ]


def was_stopped(stage: Stage) -> bool:
    """Whether a stage was ended from outside: Ctrl-C, SIGTERM; in the report it is `failed`."""
    stopped = stage.error is not None and stage.error.type in ("Interrupted", "Terminated")
    return stage.status == "failed" and stopped


def status_word(stage: Stage) -> str:
    """Return how a stage ended, for people."""
    return "stopped" if was_stopped(stage) else stage.status


def figure_column(name: str) -> Column[Stage]:
    """Return the column of one figure; one that is known to be too low says so."""
    title = figure_of(name).title
    return Column(figure_head(name), lambda stage: figure_text(stage, name), title)


def figure_head(name: str) -> str:
    """Return the heading of a column: of a figure, else of a metric."""
    return FIGURES[name].head if name in FIGURES else metric_head(name)


def figure_text(stage: Stage, name: str) -> str:
    """Return a figure of a stage for people: `6.42 MB`, or `>= 6.42 MB` for a lower bound."""
    text = figure_of(name).text(stage.figure(name))
    bounded = name == _TRAINING_PEAK and text != NULL and is_lower_bound(stage)
    return f">= {text}" if bounded else text


def is_lower_bound(stage: Stage) -> bool:
    """Whether the training peak of a stage is without the tensors that nobody could count."""
    return stage.training is not None and bool(stage.training.training_peak_lower_bound)


def metric_head(name: str) -> str:
    """Return a metric's name, short enough for a table's head."""
    return name.replace("categorical_crossentropy", "crossentropy").removeprefix("sparse_")


def change_cell(report: Report, metric: str) -> Callable[[Stage], str]:
    """Return the cell of a metric's difference to the baseline with its 95 % interval."""

    def cell(stage: Stage) -> str:
        if stage.name == report.baseline:
            bounded = metric_figure(metric).bounds is not None
            return _own_interval(stage, metric) if bounded else "baseline"
        return change_text(metric, stage.delta.get(metric))

    return cell


def change_word(metric: str) -> str:
    """Return what heads call a metric's difference."""
    return "points" if metric_figure(metric).unit == "fraction" else "change"


def change_text(metric: str, delta: FigureDelta | MetricDelta | Spread | None) -> str:
    """Return a metric's difference with its interval: `-2.00 [-3.1, +0.4]`, in points."""
    if delta is None or isinstance(delta, FigureDelta):
        return NULL
    is_fraction = metric_figure(metric).unit == "fraction"

    def number(value: float, decimals: int) -> str:
        return format_change(value, "fraction", decimals) if is_fraction else f"{value:+.3g}"

    text = number(delta.mean if isinstance(delta, Spread) else delta.value, 2)
    if delta.low is None or delta.high is None:
        return text
    return f"{text} [{number(delta.low, 1)}, {number(delta.high, 1)}]"


def _own_interval(stage: Stage, metric: str) -> str:
    """Return where the baseline's own metric would lie on other examples."""
    limits = stage.intervals.get(metric, Limits())
    if limits.low is None or limits.high is None:
        return "baseline"
    if metric_figure(metric).unit == "fraction":
        return f"within [{100 * limits.low:.1f}, {100 * limits.high:.1f}]"
    return f"within [{limits.low:.3g}, {limits.high:.3g}]"


def split_of(report: Report) -> str:
    """Return the split that metrics were measured on: of a search's trial, validation."""
    validation = any(one.code == VALIDATION_FIGURES for one in report.warnings)
    return "validation" if validation else "test"


def caption(report: Report) -> str:
    """Return what the table's numbers mean, in one line."""
    base = report.baseline
    metric = main_metric(report)
    examples = {stage.examples for stage in report.stages} - {None}
    if metric is None:
        return f"ratio: tflite against {base}"
    on = f" on {examples.pop():,} {split_of(report)} examples" if len(examples) == 1 else ""
    return f"{metric}{on}; {change_word(metric)} [95 % interval] and ratio against {base}"


_TRUSTED = "--trust-model: the model files were loaded without scanning them for code"


def notes_of(report: Report, *, routine: bool) -> list[tuple[str, str]]:
    """Return pairs of stage names and note; a note that several stages share comes once.

    Args:
        report: the report.
        routine: whether to return the notes that most runs have (how a figure was measured, or
            that it does not apply) or all others.
    """
    trusted = report.trust_model and not routine
    stages_of: dict[str, list[str]] = {_TRUSTED: ["all"]} if trusted else {}
    for stage in report.stages:
        for note in dict.fromkeys(stage.notes):
            if _is_routine(note, stage) == routine:
                stages_of.setdefault(str(note), []).append(stage.name)
    return [(", ".join(names), note) for note, names in stages_of.items()]


def _is_routine(note: Note, stage: Stage) -> bool:
    """Whether a note is about figures that are there, or that no such stage has."""
    if not note.figures or not all(name in FIGURES for name in note.figures):
        return False
    return note.is_expected or all(stage.figure(name) is not None for name in note.figures)


def grouped_skips(report: Report) -> list[tuple[str, str]]:
    """Return pairs of stage name and text, one per reason, with the layers that it is about."""
    return [
        (stage.name, text)
        for stage in report.stages
        for text in _by_reason((one.layer, one.reason or _NO_REASON) for one in stage.skipped)
    ]


def training_notes(report: Report) -> Iterator[tuple[str, str]]:
    """Yield stage name and text: how batches were divided, and why a training is not exact."""
    for stage in report.stages:
        training = stage.training or Training()
        steps, replicas = training.accumulation_steps or 1, training.replicas or 1
        if steps > 1 or replicas > 1 or training.oom_events:
            count = len(training.oom_events)
            updates = "1 update" if count == 1 else f"{count} updates"
            yield (
                stage.name,
                f"each batch is trained as {steps} micro-batch{'es' if steps > 1 else ''}"
                + (f" of at most {size} examples" if (size := training.micro_batch_size) else "")
                + (f" on each of {replicas} replicas" if replicas > 1 else "")
                + (f"; {updates} ran out of memory with larger ones" if count else ""),
            )
        whole = [text for text in training.inexact_because if ": " not in text]
        pairs = (text.partition(": ")[::2] for text in training.inexact_because if ": " in text)
        for text in (*whole, *_by_reason(pairs)):
            yield stage.name, f"training is not exact: {text}"


def _by_reason(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return a text for each reason, of pairs of a layer and a reason."""
    layers_of: dict[str, list[str]] = {}
    for layer, reason in pairs:
        layers_of.setdefault(reason, []).append(layer)
    return [f"{listed(layers, _LAYERS_LISTED)}: {reason}" for reason, layers in layers_of.items()]


def errors_of(report: Report) -> list[tuple[str, str, str]]:
    """Return stage name, message and hint of every failed stage."""
    errors = []
    for stage in report.stages:
        if stage.status == "failed":
            error = stage.error or Failure()
            message = error.message or _NO_REASON
            first = message.partition("\n")[0]  # what follows is a worker's log
            if error.subject and error.subject != stage.name:
                first = f"{error.subject}: {first}"
            errors.append((stage.name, first, error.hint or ""))
    return errors


def cached_lines(report: Report) -> list[str]:
    """Return which stages were not measured now, with when and where they were."""
    stages_of: dict[str, list[str]] = {}
    for stage in report.stages:
        if stage.status == "cached":
            measured = stage.measured or MeasuredAt()
            when = f"{measured.at or 'at an unknown time'} on {measured.machine or '?'}"
            stages_of.setdefault(when, []).append(stage.name)
    return [f"{', '.join(names)}: measured {when}" for when, names in stages_of.items()]


def environment_of(report: Report) -> list[tuple[str, str]]:
    """Return pairs of name and text of what a report was made with."""
    known = {"baseline": report.baseline, "recipe sha256": report.recipe.sha256}
    return facts_of({**known, **to_plain(report.environment)})


def facts_of(values: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return pairs of name and text of JSON's data."""
    return [(key.replace("_", " "), fact_text(value)) for key, value in values.items()]


def fact_text(value: Json) -> str:
    """Return any JSON as a text: `train 1,257, test 360`."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {fact_text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return listed([fact_text(one) for one in value], _MOST_LISTED) if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "unknown" if value is None else str(value)


def artifact_paths(report: Report, run_folder: Path | None = None) -> list[str]:
    """Return the result's files: the finals' artifacts, else the last artifact that there is."""
    artifacts = {s.name: s.artifact for s in report.stages if s.artifact is not None}
    finals = [name for name in report.finals if name in artifacts]
    names = finals or list(artifacts)[-1:]
    return [str(run_folder / artifacts[n]) if run_folder else artifacts[n] for n in names]


def _metric_cell(metric: str) -> Callable[[Stage], str]:
    figure = metric_figure(metric)

    def cell(stage: Stage) -> str:
        return status_word(stage) if stage.metrics is None else figure.text(stage.figure(metric))

    return cell


def flat_metrics(report: Report) -> dict[str, float]:
    """Return `STAGE.FIGURE: number` for every figure that was measured, and `gates_missed`.

    Null figures are left out: a 0 would be drawn as one. Durations and latencies are among them,
    so two runs of the same recipe differ in these.
    """
    figures: dict[str, float] = {}
    for stage in report.stages:
        figures |= {f"{stage.name}.{name}": v for name, v in stage_figures(stage).items()}
    missed = [gate for gate in report.gates if not gate.passed and gate.level == "fail"]
    return figures | {"gates_missed": len(missed)}


def stage_figures(stage: Stage) -> dict[str, float]:
    """Return the figures of one stage that were measured, by name, without how latency was."""
    groups = (stage.metrics, stage.size, stage.memory, stage.latency)
    figures = {name: v for group in groups for name, v in (group or {}).items()}
    figures = {name: v for name, v in figures.items() if name not in ("threads", "examples")}
    figures["duration_s"] = stage.duration_s
    return {name: value for name, value in figures.items() if value is not None}


_BYTE_OF_A_NAME = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""How YAML writes a byte of a file's name that the locale could not read."""


def recipe_of(report: Report) -> Mapping[str, Json]:
    """Return the resolved recipe of a report for display; empty where it has none to be read.

    Bytes of names that are no text in their locale become U+FFFD.
    """
    from shrink.base import yaml  # only some renderings look into a recipe

    text = _BYTE_OF_A_NAME.sub("\N{REPLACEMENT CHARACTER}", report.resolved_recipe or "{}")
    try:
        value = yaml.loads(text, "resolved recipe").value
    except RecipeError:  # a report of another version; its figures still count
        return {}
    return value if isinstance(value, Mapping) else {}
