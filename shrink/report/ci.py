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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from shrink.base.errors import RecipeError, ShrinkError
from shrink.contract.report import Report
from shrink.report.content import artifact_paths, errors_of, warnings_of
from shrink.report.gate_lines import GateLine, gate_lines
from shrink.report.headline import ending, verdict
from shrink.report.text import render_markdown

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, not even as an entity (Char, production 2)."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def render_junit(report: Report) -> str:
    """Return a report as JUnit XML.

    A failed stage is an `error`, a missed gate a `failure`. A stage that never started is
    `skipped`, and so is a gate that was not checked, or that only warns: the format has no
    warnings, and that is the one mark that CI shows without failing the build. How the run ended
    and what the report warns of is the output of the suite of stages.
    """
    root = ElementTree.Element("testsuites")
    name = report.recipe.name
    suites = ((f"{name}.stages", _stage_cases(report)), (f"{name}.gates", _gate_cases(report)))
    output = [f"{name}: {verdict(report)}", *(f"warning: {w.text()}" for w in warnings_of(report))]
    for number, (suite, cases) in enumerate(suites):
        root.append(_suite(number, suite, cases, _started(report), output if number == 0 else []))
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _suite(
    number: int,
    name: str,
    cases: Sequence[ElementTree.Element],
    timestamp: str,
    output: Sequence[str],
) -> ElementTree.Element:
    seconds = sum(float(case.attrib["time"]) for case in cases)
    suite = _element(
        "testsuite",
        name=name,
        package="shrink",
        id=str(number),
        timestamp=timestamp,
        hostname="localhost",
        tests=str(len(cases)),
        failures=str(_count(cases, "failure")),
        errors=str(_count(cases, "error")),
        skipped=str(_count(cases, "skipped")),
        time=f"{seconds:.3f}",
    )
    suite.append(_element("properties"))
    for case in cases:
        case.set("classname", suite.attrib["name"])
        suite.append(case)
    suite.extend([_element("system-out", "\n".join(output) or None), _element("system-err")])
    return suite


def _stage_cases(report: Report) -> list[ElementTree.Element]:
    errors = {name: (message, hint) for name, message, hint in errors_of(report)}
    cases = []
    for stage in report.stages:
        case = _case(stage.name, stage.duration_s)
        if stage.name in errors:
            message, hint = errors[stage.name]
            kind = (stage.error and stage.error.type) or "StageError"
            text = f"{message}\nhint: {hint}" if hint else message
            case.append(_element("error", text, message=message, type=kind))
        elif stage.status == "skipped":
            case.append(_element("skipped", message="an earlier stage did not finish"))
        cases.append(case)
    return cases


def _gate_cases(report: Report) -> list[ElementTree.Element]:
    return [_gate_case(line) for line in gate_lines(report)]


def _gate_case(line: GateLine) -> ElementTree.Element:
    case = _case(f"{line.name} ({line.stage})", None)
    text = f"{line.comparison}: {line.reason}" if line.reason else line.comparison
    if line.mark == "FAIL":
        case.append(_element("failure", f"{line.name} of {line.stage}: {text}", message=text))
        case[0].set("type", "missed gate")
    elif line.mark == "WARN":
        case.append(_element("skipped", message=f"warning: {text}"))
    elif line.mark == "SKIP":
        case.append(_element("skipped", message=f"not checked: {line.reason or text}"))
    return case


def _case(name: str, seconds: float | None) -> ElementTree.Element:
    return _element("testcase", name=name, classname="", time=f"{seconds or 0:.3f}")


def _element(tag: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
    element = ElementTree.Element(tag, {key: _clean(value) for key, value in attributes.items()})
    element.text = None if text is None else _clean(text)
    return element


def _clean(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)


def _count(cases: Sequence[ElementTree.Element], tag: str) -> int:
    return sum(case.find(tag) is not None for case in cases)


def _started(report: Report) -> str:
    """Return when the first stage was measured, without the zone, which the schemas refuse."""
    times = [stage.measured.at or "" for stage in report.stages if stage.measured]
    starts = [match[0] for time in times if (match := _TIME.match(time))]
    return min(starts, default="1970-01-01T00:00:00")


SUMMARY_BYTES = 1024 * 1024
"""GitHub refuses the whole summary of a step that is larger."""
SUMMARY_COLUMNS = 10
"""About as many as fit beside each other on GitHub's page."""
_CUT = "\n\n*This summary was cut; {} holds all of it.*\n"
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
    if path := environment.get("GITHUB_STEP_SUMMARY"):
        room = SUMMARY_BYTES - _size(Path(path))
        warnings += _append("GITHUB_STEP_SUMMARY", path, summary(report, room))
    if path := environment.get("GITHUB_OUTPUT"):
        warnings += _append("GITHUB_OUTPUT", path, output_lines(report, run_folder))
    return warnings


def summary(report: Report, room: int) -> str:
    """Return the report as Markdown in at most `room` bytes, cut between lines.

    Its table has the columns that matter most; report.md has all.
    """
    return _fitting(render_markdown(report, most_columns=SUMMARY_COLUMNS), room, "report.md")


def _fitting(text: str, room: int, where: str) -> str:
    if len(text.encode()) <= room:
        return text
    told = _CUT.format(where)
    cut = text.encode()[: max(room - len(told.encode()), 0)].decode(errors="ignore")
    whole = cut.rpartition("\n")[0]
    return whole + told if whole else ""


def publish_comparison(
    markdown: str, passed: bool, environment: Environment = os.environ
) -> list[str]:
    """Add a sweep's comparison to the job summary, and `passed` to the step's outputs.

    Returns:
        A warning for each file that cannot be written to.
    """
    warnings = []
    if path := environment.get("GITHUB_STEP_SUMMARY"):
        text = _fitting(markdown, SUMMARY_BYTES - _size(Path(path)), "compare.md")
        warnings += _append("GITHUB_STEP_SUMMARY", path, text)
    if path := environment.get("GITHUB_OUTPUT"):
        line = _output("passed", "true" if passed else "false")
        warnings += _append("GITHUB_OUTPUT", path, line)
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
        file = error.position.file
        workspace = environment.get("GITHUB_WORKSPACE")
        path = Path(file).absolute()
        inside = bool(workspace) and path.is_relative_to(str(workspace))
        properties |= {
            "file": (str(path.relative_to(str(workspace))) if inside else file),
            "line": str(error.position.line),
            "col": str(error.position.column),
        }
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


def _append(variable: str, path: str, text: str) -> list[str]:
    """Add text to a file that other steps write to as well; return a warning if that fails."""
    try:
        with Path(path).open("ab") as stream:
            stream.write(text.encode())
    except OSError as error:
        return [f"{variable}: cannot write to {path}: {error.strerror}"]
    return []


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
