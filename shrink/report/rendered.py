"""The files that are made from a report alone, the model card and the metadata among them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from shrink.base import files
from shrink.base.errors import MAY_HAVE_BEEN_TRAINED_ON, listed
from shrink.base.figures import COSTS, figure_of, metric_figure
from shrink.base.foreign import JsonObject
from shrink.contract.codec import to_plain
from shrink.contract.details import Limits, TensorType, Usage
from shrink.contract.report import Report, Stage
from shrink.contract.usage import METADATA_NAME, VOCABULARY_NAME, metadata, vocabulary
from shrink.report.ci import render_junit
from shrink.report.content import cached_lines, flat_metrics, recipe_of, split_of, warnings_of
from shrink.report.headline import verdict
from shrink.report.memory_map import memory_map_sentences
from shrink.report.placement import placement_sentences
from shrink.report.slices import slice_table
from shrink.report.text import escape, render_markdown, table

_MOST_LABELS = 50
_MOST_SLICES = 10


def render_card(report: Report, report_sha256: str) -> str:
    """Return the card as Markdown, with a part for each result of the run.

    Args:
        report: the report.
        report_sha256: of the `report.json` that holds it.
    """
    results = [stage for stage in report.stages if stage.name in report.finals and stage.artifact]
    parts = [f"# Model card: {escape(report.recipe.name)}"]
    parts.append(
        "Every figure was measured by shrink on the exported file; none is copied from elsewhere. "
        "What is not written here was not measured."
    )
    parts.append(f"The run ended: {escape(verdict(report))}.")
    if warnings := warnings_of(report):
        parts += ["## Warnings", _list([warning.text() for warning in warnings])]
    for stage in results:
        parts += _result(report, stage)
    if not results:
        parts.append("The run has no result.")
    parts += [
        "## How it was made",
        _list(_steps(report)),
        "## Origin",
        _list(_origin(report, report_sha256)),
    ]
    return "\n\n".join(parts) + "\n"


def _result(report: Report, stage: Stage) -> Iterator[str]:
    yield f"## {escape(stage.name)}: {escape(str(stage.artifact))}"
    yield _list([f"SHA-256 {stage.sha256}", *_interface(stage.told.interface)])
    yield "### Measured"
    yield _figures(report, stage)
    machine = (stage.measured and stage.measured.machine) or "an unknown machine"
    yield (
        f"{_tested_on(report, stage)} Latency and memory of the host are those of "
        f"{escape(machine)}; other "
        "devices differ."
    )
    yield from (
        f"Memory by operator: {escape(sentence)}"
        for name, sentence in memory_map_sentences(report)
        if name == stage.name
    )
    yield from (
        f"Where operators run: {escape(told)}"
        for name, told in placement_sentences(report)
        if name == stage.name
    )
    if stage.slices and stage.name != report.baseline:
        slices = slice_table(report, stage, _MOST_SLICES)
        yield "### Largest losses by slice"
        yield table(slices.heads, slices.rows)
        yield escape(slices.caption)
    if stage.notes:
        yield "### Notes"
        yield _list(stage.notes)


def _interface(interface: Usage | None) -> Iterator[str]:
    if interface is None:
        return
    yield from (f"input {_tensor(one)}" for one in interface.inputs or ())
    yield from (f"output {_tensor(one)}" for one in interface.outputs or ())
    if interface.front_end is not None:
        yield _front_end(interface.front_end)
    yield f"normalisation before the input: {_normalisation(interface.normalize)}"
    if interface.labels:
        yield f"labels, by index of the output: {_labels(interface.labels)}"


def _front_end(settings: Mapping[str, object]) -> str:
    tokens = settings.get("vocabulary")
    if not isinstance(tokens, list | tuple):
        return f"audio front end (docs/audio.md): {_settings(settings)}"
    others = {key: value for key, value in settings.items() if key != "vocabulary"}
    told = f"{len(tokens):,} tokens in {VOCABULARY_NAME}"
    return f"token ids (docs/text.md), {told}: {_settings(others)}"


def _tested_on(report: Report, stage: Stage) -> str:
    if not stage.examples:
        return "Metrics were not measured: no data was named."
    if split_of(report) != "test":
        return f"Metrics on {stage.examples:,} examples of the validation split."
    return (
        f"Metrics on {stage.examples:,} examples of the test split, which no stage trained, "
        f"tuned or calibrated on.{_doubt(report)}"
    )


def _figures(report: Report, stage: Stage) -> str:
    base = report.stage(report.baseline) or stage
    rows = ["| figure | value | 95 % interval | baseline |", "|---|---:|---:|---:|"]
    for name, value in (stage.metrics or {}).items():
        figure, limits = metric_figure(name), stage.intervals.get(name, Limits())
        low, high = limits.low, limits.high
        span = f"{figure.text(low)} to {figure.text(high)}" if low is not None else "-"
        before = figure.text((base.metrics or {}).get(name))
        rows.append(f"| {escape(name)} | {figure.text(value)} | {span} | {before} |")
    for name in (*COSTS, "p90_ms"):
        figure, value = figure_of(name), stage.figure(name)
        if value is not None:
            before = figure.text(base.figure(name))
            rows.append(f"| {figure.title} | {figure.text(value)} | - | {before} |")
    return "\n".join(rows)


def _steps(report: Report) -> Iterator[str]:
    recipe = recipe_of(report)
    if data := recipe.get("data"):
        yield f"data: {_settings(data)}"
    configured = [entry for entry in recipe.get("stages", ()) if isinstance(entry, Mapping)]
    for entry in configured:
        for kind, settings in entry.items():
            stage = report.stage(str((settings or {}).get("name") or kind))
            yield f"{stage.name if stage else kind}: {_settings(settings or {})}"


def _origin(report: Report, report_sha256: str) -> Iterator[str]:
    yield f"shrink {report.environment.shrink}, TensorFlow {report.environment.tensorflow}"
    yield f"recipe SHA-256 {report.recipe.sha256}"
    yield f"report.json SHA-256 {report_sha256}"
    if report.command:
        yield f"command: {report.command}"
    yield from cached_lines(report)


def _settings(value: object) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    filled = {key: item for key, item in value.items() if item not in (None, [], {}, "")}
    return ", ".join(f"{key} {_inner(item)}" for key, item in filled.items())


def _inner(value: object) -> str:
    return f"({_settings(value)})" if isinstance(value, Mapping) else str(value)


def _doubt(report: Report) -> str:
    codes = [warning.code for warning in warnings_of(report)]
    unknown = " What the model was trained on before this run is not known."
    return unknown if MAY_HAVE_BEEN_TRAINED_ON in codes else ""


def _tensor(one: TensorType) -> str:
    shape = "x".join(map(str, one.shape))
    stored = f", real = {one.scale:.6g} * (stored - {one.zero_point})" if one.scale else ""
    return f"{one.name}: {one.dtype}, {shape}{stored}"


def _normalisation(normalize: Mapping[str, object] | None) -> str:
    if normalize is None:
        return "none, examples as they are stored"
    return f"x * {normalize.get('scale')} + {normalize.get('offset')}"


def _labels(labels: Sequence[str]) -> str:
    more = ", in metadata.json" if len(labels) > _MOST_LABELS else ""
    return f"{listed(labels, _MOST_LABELS)}{more}"


def _list(items: Iterator[str] | Sequence[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items) or "Nothing is known."


MARKDOWN_NAME = "report.md"
HTML_NAME = "report.html"
JUNIT_NAME = "junit.xml"
METRICS_NAME = "metrics.json"
CARD_NAME = "model-card.md"
RENDERED = (MARKDOWN_NAME, HTML_NAME, JUNIT_NAME, METRICS_NAME, CARD_NAME, METADATA_NAME)
"""Every name that `render` returns, but for `VOCABULARY_NAME`, of models of texts alone."""


def render(report: Report, lineages: Mapping[str, JsonObject]) -> dict[str, str]:
    """Return the files that show a report, by name.

    Args:
        report: the report.
        lineages: of its artifacts, by their SHA-256, for `artifacts/metadata.json`.
    """
    from shrink.report.html import render_html

    digest = hashlib.sha256(files.json_text(to_plain(report)).encode()).hexdigest()
    return {
        MARKDOWN_NAME: render_markdown(report),
        HTML_NAME: render_html(report),
        JUNIT_NAME: render_junit(report),
        METRICS_NAME: files.json_text(flat_metrics(report)),
        CARD_NAME: render_card(report, digest),
        METADATA_NAME: files.json_text(metadata(report, digest, lineages)),
        **vocabulary(report),
    }
