"""The model card."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shrink.base.errors import RecipeError
from shrink.base.figures import FIGURES, figure_of, metric_figure
from shrink.base.report_warning import MAY_HAVE_BEEN_TRAINED_ON, warnings_of
from shrink.base.yaml import reader as yaml
from shrink.report.content import Report, Stage, cached_lines
from shrink.report.markdown import escape
from shrink.report.metadata import interface_of
from shrink.report.verdict import verdict

_BYTE_OF_A_NAME = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""How YAML writes a byte of a file's name that the locale could not read."""


def recipe_of(report: Report) -> Mapping[str, Any]:
    """Return the resolved recipe of a report for display; empty where it has none to be read.

    Bytes of names that are no text in their locale become U+FFFD.
    """
    text = _BYTE_OF_A_NAME.sub("\N{REPLACEMENT CHARACTER}", report.get("resolved_recipe") or "{}")
    try:
        value = yaml.loads(text, "resolved recipe").value
    except RecipeError:  # a report of another version; its figures still count
        return {}
    return value if isinstance(value, Mapping) else {}


_MOST_LABELS = 50
_MEANINGS = {
    "tflite_bytes": "size of the TFLite file",
    "parameters": "weights",
    "macs": "multiply-accumulates per example",
    "arena_bytes": "tensor arena on a microcontroller",
    "inference_peak_bytes": "memory that loading and running adds on the host",
    "p50_ms": "median latency on the host",
    "p90_ms": "90th percentile of latency on the host",
}


def render_card(report: Report, report_sha256: str) -> str:
    """Return the card as Markdown, with a part for each result of the run.

    Args:
        report: the report.
        report_sha256: of the `report.json` that holds it.
    """
    finals = set(report.get("finals", ()))
    results = [s for s in report["stages"] if s["name"] in finals and s["artifact"]]
    parts = [f"# Model card: {escape(str(report['recipe'].get('name', '')))}"]
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
    yield f"## {escape(stage['name'])}: {escape(str(stage['artifact']))}"
    facts = [f"SHA-256 {stage['sha256']}"]
    interface = interface_of(stage)
    for key in ("inputs", "outputs"):
        facts += [f"{key[:-1]} {_tensor(one)}" for one in interface.get(key) or ()]
    normalize = interface.get("normalize")
    if interface:
        facts.append(f"normalisation before the input: {_normalisation(normalize)}")
    if labels := interface.get("labels"):
        facts.append(f"labels, by index of the output: {_labels(labels)}")
    yield _list(facts)
    yield "### Measured"
    yield _figures(report, stage)
    yield (
        f"{_tested_on(report, stage)} Latency and memory of the host are those of "
        f"{escape(str((stage['measured'] or {}).get('machine', 'an unknown machine')))}; other "
        "devices differ."
    )
    if notes := [str(note) for note in stage["notes"]]:
        yield "### Notes"
        yield _list(notes)


def _tested_on(report: Report, stage: Stage) -> str:
    if not stage["examples"]:
        return "Metrics were not measured: no data was named."
    return (
        f"Metrics on {stage['examples']:,} examples of the test split, which no stage trained, "
        f"tuned or calibrated on.{_doubt(report)}"
    )


def _figures(report: Report, stage: Stage) -> str:
    base = next((s for s in report["stages"] if s["name"] == report["baseline"]), stage)
    rows = ["| figure | value | 95 % interval | baseline |", "|---|---:|---:|---:|"]
    for name, value in (stage["metrics"] or {}).items():
        figure, interval = metric_figure(name), (stage.get("intervals") or {}).get(name) or {}
        low, high = interval.get("low"), interval.get("high")
        span = f"{figure.text(low)} to {figure.text(high)}" if low is not None else "-"
        before = figure.text((base["metrics"] or {}).get(name))
        rows.append(f"| {escape(name)} | {figure.text(value)} | {span} | {before} |")
    for name, meaning in _MEANINGS.items():
        figure = figure_of(name)
        value = (stage[FIGURES[name].group] or {}).get(name)
        if value is not None:
            before = figure.text((base[figure.group] or {}).get(name))
            rows.append(f"| {meaning} | {figure.text(value)} | - | {before} |")
    return "\n".join(rows)


def _steps(report: Report) -> Iterator[str]:
    recipe = recipe_of(report)
    if data := recipe.get("data"):
        yield f"data: {_settings(data)}"
    configured = [entry for entry in recipe.get("stages", ()) if isinstance(entry, Mapping)]
    names = {str(s["name"]): s for s in report["stages"]}
    for entry in configured:
        for kind, settings in entry.items():
            stage = names.get(str((settings or {}).get("name") or kind))
            yield f"{(stage or {}).get('name', kind)}: {_settings(settings or {})}"


def _origin(report: Report, report_sha256: str) -> Iterator[str]:
    environment = report["environment"]
    yield f"shrink {environment.get('shrink')}, TensorFlow {environment.get('tensorflow')}"
    yield f"recipe SHA-256 {report['recipe'].get('sha256')}"
    yield f"report.json SHA-256 {report_sha256}"
    if report.get("command"):
        yield f"command: {report['command']}"
    yield from cached_lines(report)


def _settings(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    given = {key: item for key, item in value.items() if item not in (None, [], {}, "")}
    return ", ".join(f"{key} {_inner(item)}" for key, item in given.items())


def _inner(value: Any) -> str:
    return f"({_settings(value)})" if isinstance(value, Mapping) else str(value)


def _doubt(report: Report) -> str:
    codes = [warning.code for warning in warnings_of(report)]
    unknown = " What the model was trained on before this run is not known."
    return unknown if MAY_HAVE_BEEN_TRAINED_ON in codes else ""


def _tensor(one: Mapping[str, Any]) -> str:
    shape = "x".join(str(side) for side in one.get("shape", ()))
    scale = one.get("scale")
    stored = f", real = {scale:.6g} * (stored - {one.get('zero_point')})" if scale else ""
    return f"{one.get('name')}: {one.get('dtype')}, {shape}{stored}"


def _normalisation(normalize: Any) -> str:
    if not isinstance(normalize, Mapping):
        return "none, examples as they are stored"
    return f"x * {normalize.get('scale')} + {normalize.get('offset')}"


def _labels(labels: Sequence[Any]) -> str:
    shown = ", ".join(map(str, labels[:_MOST_LABELS]))
    more = len(labels) - _MOST_LABELS
    return f"{shown} and {more} more, in metadata.json" if more > 0 else shown


def _list(items: Iterator[str] | Sequence[str]) -> str:
    return "\n".join(f"- {escape(item)}" for item in items) or "Nothing is known."
