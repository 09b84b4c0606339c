"""The report as JUnit XML: one case per stage and one per gate, as CI systems show them.

The file keeps to what both common schemas allow (junit-10.xsd of Jenkins' xUnit plug-in, and
JUnit.xsd of windyroad, which Ant and GitLab follow).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from shrink.base.report_warning import warnings_of
from shrink.report.content import Report, errors_of
from shrink.report.gate_lines import GateLine, gate_lines
from shrink.report.verdict import verdict

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
    name = str(report["recipe"].get("name", ""))
    suites = ((f"{name}.stages", _stage_cases(report)), (f"{name}.gates", _gate_cases(report)))
    told = [f"{name}: {verdict(report)}", *(f"warning: {w.text()}" for w in warnings_of(report))]
    for number, (suite, cases) in enumerate(suites):
        root.append(_suite(number, suite, cases, _started(report), told if number == 0 else []))
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
    for stage in report["stages"]:
        case = _case(str(stage["name"]), stage["duration_s"])
        if stage["name"] in errors:
            message, hint = errors[stage["name"]]
            kind = (stage.get("error") or {}).get("type") or "StageError"
            text = f"{message}\nhint: {hint}" if hint else message
            case.append(_element("error", text, message=message, type=str(kind)))
        elif stage["status"] == "skipped":
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


def _started(report: Mapping[str, Any]) -> str:
    """Return when the first stage was measured, without the zone, which the schemas refuse."""
    times = [str((stage["measured"] or {}).get("at", "")) for stage in report["stages"]]
    found = [match[0] for time in times if (match := _TIME.match(time))]
    return min(found, default="1970-01-01T00:00:00")
