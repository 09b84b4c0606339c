"""How a run ended: one word that every rendering agrees on."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from shrink.contract.result import StepResult
from tests.report.plain import (
    ending,
    render_html,
    render_junit,
    render_markdown,
    render_report,
    verdict,
)
from tests.report.toys import failure, outcomes, report

WARNING = {"code": "c", "message": "m", "hint": None, "stage": None}


def stopped(kind: str, gates: dict[str, Any] | None = None) -> dict[str, Any]:
    """A run that ended in its second stage."""
    train, prune, quantize = outcomes()
    error = failure(type=kind, message="why", hint=None)
    failed = replace(prune, status="failed", result=StepResult(), error=error, artifact=None)
    skipped = replace(quantize, status="skipped", result=StepResult(), artifact=None)
    return report([train, failed, skipped], gates)


def shown(built: dict[str, Any]) -> str:
    stream = io.StringIO()
    render_report(built, Console(file=stream, width=120, force_terminal=False))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("gates", "how", "words"),
    [
        ({}, "finished", "FINISHED, no gates"),
        ({"loss": 1}, "passed", "PASSED"),
        ({"loss": {"limit": 0, "level": "warn"}}, "passed", "PASSED"),
        ({"loss": 0}, "failed", "FAILED: 1 of 1 gates missed: loss"),
        (
            {"loss": 0, "macs": 1, "parameters": 1, "arena_bytes": 1, "p50_ms": 9},
            "failed",
            "FAILED: 4 of 5 gates missed: loss, macs, parameters and 1 more",
        ),
    ],
)
def test_verdict_is_passed_only_where_there_was_something_to_keep(
    gates: dict[str, Any], how: str, words: str
) -> None:
    built = report(gates=gates)
    assert (ending(built), verdict(built)) == (how, words)
    assert built["passed"] is (how != "failed")
    assert render_markdown(built).replace("\\", "").startswith(f"# digits: {words}\n")
    assert shown(built).startswith(f"digits: {words}\n")
    assert f"<title>digits: {words}</title>" in render_html(built)
    out = ElementTree.fromstring(render_junit(built).encode()).find(".//system-out")
    assert out is not None
    assert out.text == f"digits: {words}"


def test_verdict_counts_warnings_so_that_nothing_looks_plainly_good() -> None:
    warned = {"warnings": [WARNING, {**WARNING, "code": "d"}]}
    assert verdict(report() | warned) == "FINISHED, no gates, 2 warnings"
    built = report(gates={"loss": 1}) | {"warnings": [WARNING]}
    assert verdict(built) == "PASSED, 1 warning"
    assert 'class="badge warn"' in render_html(built)


@pytest.mark.parametrize("kind", ["Interrupted", "Terminated"])
def test_verdict_of_a_stopped_run_is_no_failure_and_its_gates_are_not_misses(kind: str) -> None:
    built = stopped(kind, {"tflite_bytes": 1, "accuracy": 0.9, "training_peak_bytes": "1GB"})
    assert verdict(built) == "INTERRUPTED: prune did not finish"
    assert built["passed"] is False
    assert [gate.get("judged") for gate in built["gates"]] == [False] * 3
    for text in (shown(built), render_markdown(built), render_html(built)):
        assert "FAIL" not in text
        assert "missed" not in text
        assert "failed" not in text
    assert "3 gates not checked: stage quantize was skipped; the run did not finish" in shown(built)
    cases = ElementTree.fromstring(render_junit(built).encode()).findall(".//failure")
    assert cases == []


def test_verdict_of_a_failed_run_names_the_stage_not_the_gates() -> None:
    built = stopped("StageError", {"tflite_bytes": 1})
    assert verdict(built) == "FAILED: prune did not finish"
    assert "1 gate not checked: stage quantize was skipped" in shown(built)


def test_a_peak_that_was_passed_before_the_run_broke_off_is_a_miss() -> None:
    built = stopped("StageError", {"training_peak_bytes": "30MB"})
    assert (built["gates"][0]["passed"], built["gates"][0].get("judged", True)) == (False, True)
