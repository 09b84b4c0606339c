"""What CI systems read: annotations, outputs, JUnit.

The file keeps to what both common schemas allow (junit-10.xsd of Jenkins' xUnit plug-in, and
JUnit.xsd of windyroad, which Ant and GitLab follow).

Nothing here happens unless the environment asks for it: `GITHUB_STEP_SUMMARY`, `GITHUB_OUTPUT`
and `GITHUB_ACTIONS` are GitHub's; Forgejo and Gitea set the same. Annotations go to stderr, which
the runner reads as well as stdout, so that the document of `--json` stays one document.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from shrink.base.errors import RecipeError, ShrinkError
from shrink.contract.report import Report
from shrink.report.content import artifact_paths, errors_of, warnings_of
from shrink.report.gate_lines import gate_lines
from shrink.report.headline import ending, verdict
from shrink.report.page import template
from shrink.report.sections import render_markdown

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def render_junit(report: Report) -> str:
    """Return a report as JUnit XML.

    A failed stage is an `error`, a missed gate a `failure`. A stage that never started is
    `skipped`, and so is a gate that was not checked, or that only warns: the format has no
    warnings, and that is the one mark that CI shows without failing the build. How the run ended
    and what the report warns of is the output of the suite of stages.
    """
    output = [f"{report.recipe.name}: {verdict(report)}"]
    output += [f"warning: {warning.text()}" for warning in warnings_of(report)]
    # The schemas refuse the zone of a time.
    times = [stage.measured.at or "" for stage in report.stages if stage.measured]
    starts = [match[0] for time in times if (match := _TIME.match(time))]
    return template("junit.xml").render(
        report=report,
        errors={name: (message, hint) for name, message, hint in errors_of(report)},
        gates=gate_lines(report),
        output="\n".join(output),
        started=min(starts, default="1970-01-01T00:00:00"),
    )


SUMMARY_COLUMNS = 10
"""About as many as fit beside each other on GitHub's page."""
_Escapes = dict[str, str | int | None]
_DATA: _Escapes = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY: _Escapes = {**_DATA, ":": "%3A", ",": "%2C"}
Variables = Mapping[str, str]


def publish(report: Report, run_folder: Path, environment: Variables = os.environ) -> list[str]:
    """Append the report to the job summary, and the step's outputs to theirs.

    Args:
        report: the report of the run that ended.
        run_folder: put before the artifact's path.
        environment: where GitHub's variables are looked for.

    Returns:
        Warnings. A summary that cannot be written fails no run.
    """
    # The table has the columns that matter most; report.md has all.
    text = render_markdown(report, most_columns=SUMMARY_COLUMNS)
    return _publish(text, output_lines(report, run_folder), environment)


def publish_comparison(
    markdown: str, passed: bool, environment: Variables = os.environ
) -> list[str]:
    """Add a sweep's comparison to the job summary, and `passed` to the step's outputs.

    Returns:
        A warning for each file that cannot be written to.
    """
    outputs = _output("passed", "true" if passed else "false")
    return _publish(markdown, outputs, environment)


def _publish(text: str, outputs: str, environment: Variables) -> list[str]:
    """Append to the files that the runner names; return a warning for each that refuses."""
    warnings = []
    for variable, content in (("GITHUB_STEP_SUMMARY", text), ("GITHUB_OUTPUT", outputs)):
        if path := environment.get(variable):
            try:
                with Path(path).open("ab") as stream:
                    stream.write(content.encode())
            except OSError as error:
                warnings.append(f"{variable}: cannot write to {path}: {error.strerror}")
    return warnings


def output_lines(report: Report, run_folder: Path) -> str:
    """Return `passed`, `outcome`, `artifact`, `tflite_bytes` and `accuracy`.

    The last three are of the (first) final stage. `passed` is true without gates; `outcome` tells
    `finished` from `passed`, and `interrupted` from `failed`. What is unknown is empty, never 0.
    """
    ended = [stage for stage in report.stages if stage.size is not None]
    last = ended[-1] if ended else None
    stage = next((stage for stage in ended if stage.name in report.finals), last)
    values = {
        "passed": "true" if report.passed else "false",
        "outcome": ending(report),
        "artifact": next(iter(artifact_paths(report, run_folder)), ""),
        "tflite_bytes": stage.figure("tflite_bytes") if stage else None,
        "accuracy": stage.figure("accuracy") if stage else None,
    }
    return "".join(_output(name, "" if v is None else str(v)) for name, v in values.items())


def error_annotations(error: ShrinkError, environment: Variables = os.environ) -> list[str]:
    """Return a line per problem, which GitHub shows at its place in the recipe."""
    if not wanted(environment):
        return []
    problems = (error, *error.others) if isinstance(error, RecipeError) else (error,)
    return [_annotation("error", *_properties(problem, environment)) for problem in problems]


def gate_annotations(report: Report, environment: Variables = os.environ) -> list[str]:
    """Return a line per missed gate, an error or a warning by its level, and per warning."""
    if not wanted(environment):
        return []
    levels = {"FAIL": "error", "WARN": "warning"}
    lines = []
    for warning in warnings_of(report):
        text = replace(warning, hint=None).text()
        hint = f"\nhint: {warning.hint}" if warning.hint else ""
        lines.append(_annotation("warning", {"title": f"shrink {warning.code}"}, text + hint))
    for line in gate_lines(report):
        if line.mark in levels:
            reason = f": {line.reason}" if line.reason else ""
            title = {"title": f"gate {line.name} missed"}
            message = f"{line.stage}: {line.comparison}{reason}"
            lines.append(_annotation(levels[line.mark], title, message))
    return lines


def wanted(environment: Variables = os.environ) -> bool:
    """Whether a runner reads annotations."""
    return environment.get("GITHUB_ACTIONS") == "true"


def _properties(error: ShrinkError, environment: Variables) -> tuple[dict[str, str], str]:
    place, properties, message = error.position, {"title": "shrink"}, error.message
    if place is None and error.subject:
        message = f"{error.subject}: {message}"
    if place is not None and place.line:
        file, workspace = Path(place.file).absolute(), environment.get("GITHUB_WORKSPACE")
        inside = bool(workspace) and file.is_relative_to(str(workspace))
        shown = str(file.relative_to(str(workspace))) if inside else place.file
        properties |= {"file": shown, "line": str(place.line), "col": str(place.column)}
    return properties, f"{message}\nhint: {error.hint}" if error.hint else message


def _annotation(level: str, properties: Mapping[str, str], message: str) -> str:
    pairs = ",".join(f"{key}={_escaped(value, _PROPERTY)}" for key, value in properties.items())
    return f"::{level} {pairs}::{_escaped(message, _DATA)}"


def _escaped(text: str, table: _Escapes) -> str:
    return text.translate(str.maketrans(table))


def _output(name: str, value: str) -> str:
    if "\n" not in value and "\r" not in value:
        return f"{name}={value}\n"
    mark = "end"
    while mark in value:
        mark += "_"
    return f"{name}<<{mark}\n{value}\n{mark}\n"
