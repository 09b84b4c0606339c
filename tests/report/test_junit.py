"""junit.xml: what CI systems count, and that nothing in a report can break the file."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from shrink.contract.result import StepResult
from tests.report.plain import render_junit
from tests.report.toys import failure, outcome, outcomes, report

HOSTILE = "]]><x a=\"'&\x00\x08\ud800\ufffe\n\u2028\U0001f600"


def suites(**settings: Any) -> list[ElementTree.Element]:
    """The suites of a run, stages then gates, read back by another parser's rules."""
    return list(ElementTree.fromstring(render_junit(report(**settings)).encode()))


def counts(suite: ElementTree.Element) -> tuple[int, ...]:
    return tuple(int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped"))


def test_render_junit_has_a_case_per_stage_and_per_gate() -> None:
    stages, gates = suites(gates={"tflite_bytes": 20_000, "accuracy_drop": 0.05})
    assert [case.attrib["name"] for case in stages.iter("testcase")] == [
        "train",
        "prune",
        "quantize",
    ]
    assert [case.attrib["name"] for case in gates.iter("testcase")] == [
        "tflite_bytes (quantize)",
        "accuracy_drop (quantize)",
    ]
    assert (counts(stages), counts(gates)) == ((3, 0, 0, 0), (2, 0, 0, 0))
    assert stages.attrib["time"] == "30.000"
    assert stages.attrib["timestamp"] == "2026-01-02T03:04:05"


def test_render_junit_fails_a_missed_gate_and_skips_one_that_warns() -> None:
    limits = {"tflite_bytes": 10_000, "arena_bytes": {"limit": 1, "level": "warn"}, "loss": 1}
    _, gates = suites(gates=limits)
    assert counts(gates) == (3, 1, 0, 1)
    failure = gates.find(".//failure")
    assert failure is not None
    assert failure.attrib["message"] == "14.0 KB > 10.0 KB"
    skipped = gates.find(".//skipped")
    assert skipped is not None
    assert skipped.attrib["message"].startswith("warning: 24.0 KB")


def test_render_junit_says_which_interval_decided() -> None:
    stages = [outcome("train", 98, 10, None), outcome("quantize", 60, 10, "train")]
    _, gates = suites(stages=stages, gates={"accuracy_drop": {"limit": 0.1, "confidence": 0.95}})
    failure = gates.find(".//failure")
    assert failure is not None
    assert "lies beyond 10 points" in failure.attrib["message"]


def test_render_junit_reports_a_failed_stage_as_an_error() -> None:
    train, prune, quantize = outcomes()
    error = failure(type="StageError", message="the loss is NaN", hint="lower the rate")
    failed = replace(prune, status="failed", result=StepResult(), error=error)
    stages, _ = suites(
        stages=[train, failed, replace(quantize, status="skipped", result=StepResult())]
    )
    assert counts(stages) == (3, 0, 1, 1)
    found = stages.find(".//error")
    assert found is not None
    assert found.attrib == {"message": "the loss is NaN", "type": "StageError"}
    assert found.text == "the loss is NaN\nhint: lower the rate"


@pytest.mark.parametrize("failing", [False, True])
def test_render_junit_keeps_to_the_common_schemas(failing: bool) -> None:
    # The rules of windyroad's JUnit.xsd, the stricter of the two, written out.
    limit = 1 if failing else 10**6
    order = ["properties", "testcase", "system-out", "system-err"]
    for number, suite in enumerate(suites(gates={"tflite_bytes": limit, "loss": limit})):
        tags = [child.tag for child in suite]
        assert sorted(tags, key=order.index) == tags
        assert {tag: tags.count(tag) for tag in tags if tag != "testcase"} == {
            "properties": 1,
            "system-out": 1,
            "system-err": 1,
        }
        assert suite.attrib["id"] == str(number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        for case in suite.iter("testcase"):
            assert set(case.attrib) == {"name", "classname", "time"}
            assert len(case) <= 1
            assert all(set(child.attrib) == {"message", "type"} for child in case.iter("failure"))


def test_render_junit_survives_names_that_xml_cannot_hold() -> None:
    (stage,) = [
        replace(outcome("train", 98, 10, None), name=HOSTILE, status="failed", result=StepResult())
    ]
    failed = replace(stage, error=failure(type=HOSTILE, message=HOSTILE, hint=HOSTILE))
    text = render_junit(report([failed], finals=(HOSTILE,), baseline=HOSTILE))
    case = next(ElementTree.fromstring(text.encode()).iter("testcase"))
    assert case.attrib["name"].startswith("]]><x a=\"'&\ufffd\ufffd\ufffd\ufffd")
    assert case.attrib["name"].endswith("\U0001f600")


def test_render_junit_is_dated_when_nothing_was_measured() -> None:
    stages, _ = suites(stages=[replace(outcomes()[0], status="skipped", result=StepResult())])
    assert stages.attrib["timestamp"] == "1970-01-01T00:00:00"
