"""What CI systems are told beside the exit code: job summary, step outputs, annotations.

Nothing here happens unless the environment asks for it: `GITHUB_STEP_SUMMARY`, `GITHUB_OUTPUT`
and `GITHUB_ACTIONS` are GitHub's; Forgejo and Gitea set the same. Annotations go to stderr, which
the runner reads as well as stdout, so that the document of `--json` stays one document.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from shrink.base.errors import RecipeError, ShrinkError
from shrink.base.report_warning import warnings_of
from shrink.report.content import Report, artifact_paths
from shrink.report.gate_lines import gate_lines
from shrink.report.markdown import render_markdown
from shrink.report.verdict import ending

SUMMARY_BYTES = 1024 * 1024
"""GitHub refuses the whole summary of a step that is larger."""
SUMMARY_COLUMNS = 10
"""About as many as fit beside each other on GitHub's page."""
_CUT = "\n\n*This summary was cut; report.md holds all of it.*\n"
_Escapes = dict[str, str | int | None]
_DATA: _Escapes = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY: _Escapes = {**_DATA, ":": "%3A", ",": "%2C"}
Environment = Mapping[str, str]


def publish(report: Report, run_folder: Path, environment: Environment = os.environ) -> list[str]:
    """Append the report to the job summary, and the step's outputs to theirs.

    Args:
        report: the report of the run that ended.
        run_folder: put before the artifact's path.
        environment: where GitHub's variables are looked for.

    Returns:
        Warnings. A summary that cannot be written fails no run.
    """
    warnings = []
    if place := environment.get("GITHUB_STEP_SUMMARY"):
        room = SUMMARY_BYTES - _size(Path(place))
        warnings += _append("GITHUB_STEP_SUMMARY", place, summary(report, room))
    if place := environment.get("GITHUB_OUTPUT"):
        warnings += _append("GITHUB_OUTPUT", place, output_lines(report, run_folder))
    return warnings


def summary(report: Report, room: int) -> str:
    """Return the report as Markdown in at most `room` bytes, cut between lines.

    Its table has the columns that matter most; report.md has all.
    """
    text = render_markdown(report, most_columns=SUMMARY_COLUMNS)
    if len(text.encode()) <= room:
        return text
    kept = text.encode()[: max(room - len(_CUT.encode()), 0)].decode(errors="ignore")
    whole = kept.rpartition("\n")[0]
    return whole + _CUT if whole else ""


def output_lines(report: Report, run_folder: Path) -> str:
    """Return `passed`, `outcome`, `artifact`, `tflite_bytes` and `accuracy`.

    The last three are of the (first) final stage. `passed` is true without gates; `outcome` tells
    `finished` from `passed`, and `interrupted` from `failed`. What is unknown is empty, never 0.
    """
    finals = set(report.get("finals") or ())
    ended = [s for s in report["stages"] if s["size"] is not None]
    stage = next((s for s in ended if s["name"] in finals), ended[-1] if ended else None)
    values = {
        "passed": "true" if report["passed"] else "false",
        "outcome": ending(report),
        "artifact": next(iter(artifact_paths(report, run_folder)), ""),
        "tflite_bytes": (stage["size"] or {}).get("tflite_bytes") if stage else None,
        "accuracy": (stage["metrics"] or {}).get("accuracy") if stage else None,
    }
    return "".join(_output(name, "" if v is None else str(v)) for name, v in values.items())


def error_annotations(error: ShrinkError, environment: Environment = os.environ) -> list[str]:
    """Return a line per problem, which GitHub shows at its place in the recipe."""
    if not wanted(environment):
        return []
    problems = (error, *error.others) if isinstance(error, RecipeError) else (error,)
    return [_annotation("error", *_told(problem, environment)) for problem in problems]


def gate_annotations(report: Report, environment: Environment = os.environ) -> list[str]:
    """Return a line per missed gate, an error or a warning by its level, and per warning."""
    if not wanted(environment):
        return []
    levels = {"FAIL": "error", "WARN": "warning"}
    found = []
    for warning in warnings_of(report):
        told = replace(warning, hint=None).text()
        hint = f"\nhint: {warning.hint}" if warning.hint else ""
        found.append(_annotation("warning", {"title": f"shrink {warning.code}"}, told + hint))
    for line in gate_lines(report):
        if line.mark in levels:
            reason = f": {line.reason}" if line.reason else ""
            title = {"title": f"gate {line.name} missed"}
            message = f"{line.stage}: {line.comparison}{reason}"
            found.append(_annotation(levels[line.mark], title, message))
    return found


def wanted(environment: Environment = os.environ) -> bool:
    """Whether a runner reads annotations."""
    return environment.get("GITHUB_ACTIONS") == "true"


def _told(error: ShrinkError, environment: Environment) -> tuple[dict[str, str], str]:
    properties = {"title": "shrink"}
    message = (
        error.message
        if error.position or not error.subject
        else (f"{error.subject}: {error.message}")
    )
    if error.position is not None and error.position.line:
        properties |= {
            "file": _in_workspace(error.position.file, environment),
            "line": str(error.position.line),
            "col": str(error.position.column),
        }
    return properties, f"{message}\nhint: {error.hint}" if error.hint else message


def _in_workspace(file: str, environment: Environment) -> str:
    """Return a file as GitHub knows it: relative to the checkout, where it is inside."""
    workspace = environment.get("GITHUB_WORKSPACE")
    path = Path(file).absolute()
    inside = bool(workspace) and path.is_relative_to(str(workspace))
    return str(path.relative_to(str(workspace))) if inside else file


def _annotation(level: str, properties: Mapping[str, str], message: str) -> str:
    told = ",".join(f"{key}={_escaped(value, _PROPERTY)}" for key, value in properties.items())
    return f"::{level} {told}::{_escaped(message, _DATA)}"


def _escaped(text: str, table: _Escapes) -> str:
    return text.translate(str.maketrans(table))


def _output(name: str, value: str) -> str:
    if "\n" not in value and "\r" not in value:
        return f"{name}={value}\n"
    mark = "end"
    while mark in value:
        mark += "_"
    return f"{name}<<{mark}\n{value}\n{mark}\n"


def _append(variable: str, place: str, text: str) -> list[str]:
    """Add text to a file that other steps write to as well; return a warning if that fails."""
    try:
        with Path(place).open("ab") as stream:
            stream.write(text.encode())
    except OSError as error:
        return [f"{variable}: cannot write to {place}: {error.strerror}"]
    return []


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
