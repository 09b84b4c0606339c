"""Job summary, step outputs, annotations and junit.xml: what CI reads and what may not break it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from shrink.base.errors import Position, RecipeError
from shrink.contract.result import StepResult
from shrink.report.ci import error_annotations
from tests.report.plain import (
    flat_metrics,
    gate_annotations,
    output_lines,
    publish,
    render_junit,
    summary,
)
from tests.report.toys import failure, outcome, outcomes, report, with_result

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


ACTIONS = {"GITHUB_ACTIONS": "true"}


def test_publish_appends_to_what_other_steps_wrote(tmp_path: Path) -> None:
    places = {"GITHUB_STEP_SUMMARY": tmp_path / "summary", "GITHUB_OUTPUT": tmp_path / "output"}
    for place in places.values():
        place.write_text("before\n", encoding="utf-8")
    built = report()
    assert publish(built, Path("out"), {k: str(v) for k, v in places.items()}) == []
    summary_text, output_text = (place.read_text("utf-8") for place in places.values())
    assert summary_text == "before\n" + summary(built)
    assert output_text == "before\n" + output_lines(built, Path("out"))


def test_publish_writes_nothing_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert publish(report(), Path("out"), {"GITHUB_STEP_SUMMARY": ""}) == []
    assert list(tmp_path.iterdir()) == []


def test_summary_has_the_ten_columns_that_matter_most_and_none_without_a_value() -> None:
    head = next(line for line in summary(report()).splitlines() if "stage" in line)
    assert head.count("|") - head.count("\\|") - 1 == 10
    blind = [
        with_result(one, memory=dict.fromkeys(one.result.memory), latency={}) for one in outcomes()
    ]
    head = next(line for line in summary(report(blind)).splitlines() if "stage" in line)
    assert "arena" not in head
    assert "p50" not in head
    assert "parameters" in head


def test_publish_warns_where_it_cannot_write(tmp_path: Path) -> None:
    (warning,) = publish(report(), Path("out"), {"GITHUB_OUTPUT": str(tmp_path)})
    assert warning.startswith(f"GITHUB_OUTPUT: cannot write to {tmp_path}")


def test_output_lines_name_the_result() -> None:
    assert output_lines(report(), Path("runs/x")).splitlines() == [
        "passed=true",
        "outcome=finished",
        "artifact=runs/x/artifacts/02-quantize.tflite",
        "tflite_bytes=14000",
        "accuracy=0.96",
    ]


def test_output_lines_hold_a_path_that_would_forge_an_output() -> None:
    built = report([replace(outcome("a", 98, 10, None), artifact="x\npassed=true\nend")])
    text = output_lines(built, Path("o"))
    assert "artifact<<end_\no/x\npassed=true\nend\nend_\n" in text


def test_error_annotations_point_into_the_recipe(tmp_path: Path) -> None:
    place = Position(str(tmp_path / "ci" / "a,b:c.yaml"), 11, 13)
    error = RecipeError("unknown key 'epoch'\n100%", position=place, hint="did you mean epochs?")
    error.others = (RecipeError("another", position=Position("r.yaml", 2, 1)),)
    found = error_annotations(error, {**ACTIONS, "GITHUB_WORKSPACE": str(tmp_path)})
    assert found == [
        "::error title=shrink,file=ci/a%2Cb%3Ac.yaml,line=11,col=13::"
        "unknown key 'epoch'%0A100%25%0Ahint: did you mean epochs?",
        "::error title=shrink,file=r.yaml,line=2,col=1::another",
    ]


def test_annotations_are_for_runners_only() -> None:
    built = report(gates={"tflite_bytes": 1})
    for environment in ({}, {"GITHUB_ACTIONS": "false"}):
        assert error_annotations(RecipeError("wrong"), environment) == []
        assert gate_annotations(built, environment) == []


def test_gate_annotations_tell_missed_gates_by_level() -> None:
    limits = {"tflite_bytes": 10, "loss": {"limit": 0.01, "level": "warn"}, "arena_bytes": "1MB"}
    assert gate_annotations(report(gates=limits), ACTIONS) == [
        "::error title=gate tflite_bytes missed::quantize: 14.0 KB > 10 B: the limit is 10 bytes; "
        "if KB are meant, write 10KB",
        "::warning title=gate loss missed::quantize: 0.1 > 0.01",
    ]


def test_gate_annotations_tell_what_the_report_warns_of() -> None:
    warning = {"code": "few-test-examples", "message": "only 3", "hint": "more", "stage": "train"}
    (line,) = gate_annotations(report() | {"warnings": [warning]}, ACTIONS)
    assert line == "::warning title=shrink few-test-examples::train: only 3%0Ahint: more"


def test_flat_metrics_names_every_figure_and_leaves_nulls_out() -> None:
    found = flat_metrics(report(gates={"tflite_bytes": 1, "loss": {"limit": 0, "level": "warn"}}))
    assert found["quantize.tflite_bytes"] == 14_000
    assert found["train.accuracy"] == 0.98
    assert found["prune.p50_ms"] == 0.25
    assert not [name for name in found if name.endswith((".examples", ".threads"))]
    assert found["gates_missed"] == 1
    assert "quantize.training_peak_bytes" not in found
    assert "train.training_peak_bytes" in found
    assert all(isinstance(value, int | float) for value in found.values())
