"""Warnings: from a worker's result or the runner into every rendering."""

from __future__ import annotations

from shrink.base.errors import ReportWarning
from shrink.contract.report import Environment
from shrink.contract.result import StageOutcome, StepResult
from tests.report.plain import (
    build_report,
    render_html,
    render_markdown,
)

GUESSING = ReportWarning("baseline-at-chance", "no better than guessing", "check data.normalize")


def _report() -> dict[str, object]:
    result = StepResult(warnings=(GUESSING, GUESSING))
    outcome = StageOutcome("baseline", "baseline", "skipped", result=result)
    return build_report(
        recipe_name="toy",
        recipe_sha256="0",
        baseline="baseline",
        environment=Environment(),
        outcomes=[outcome],
        gates={},
        finals=["baseline"],
        warnings=[ReportWarning("seen-before", "the test examples may have been trained on")],
    )


def test_build_report_gathers_warnings_of_run_and_stages_once_the_gravest_first() -> None:
    assert _report()["warnings"] == [
        {
            "code": "baseline-at-chance",
            "message": "no better than guessing",
            "hint": "check data.normalize",
            "stage": "baseline",
        },
        {
            "code": "seen-before",
            "message": "the test examples may have been trained on",
            "hint": None,
            "stage": None,
        },
    ]


def test_renderings_show_warnings_with_stage_and_hint() -> None:
    report = _report()
    for text in (render_html(report), render_markdown(report)):
        assert "no better than guessing" in text
        assert "check data.normalize" in text
        assert "the test examples may have been trained on" in text
