"""Job summary, step outputs and annotations: what GitHub reads, and what may not break it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shrink.base.errors import ModelError, Position, RecipeError
from shrink.contract.result import StepResult
from shrink.report.ci import SUMMARY_BYTES, error_annotations
from tests.report.plain import flat_metrics, gate_annotations, output_lines, publish, summary
from tests.report.toys import outcome, outcomes, report, with_result

ACTIONS = {"GITHUB_ACTIONS": "true"}


def test_publish_appends_to_what_other_steps_wrote(tmp_path: Path) -> None:
    places = {"GITHUB_STEP_SUMMARY": tmp_path / "summary", "GITHUB_OUTPUT": tmp_path / "output"}
    for place in places.values():
        place.write_text("before\n", encoding="utf-8")
    built = report()
    assert publish(built, Path("out"), {k: str(v) for k, v in places.items()}) == []
    summary_text, output_text = (place.read_text("utf-8") for place in places.values())
    assert summary_text == "before\n" + summary(built, SUMMARY_BYTES)
    assert output_text == "before\n" + output_lines(built, Path("out"))


def test_publish_writes_nothing_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert publish(report(), Path("out"), {"GITHUB_STEP_SUMMARY": ""}) == []
    assert list(tmp_path.iterdir()) == []


def test_summary_has_the_ten_columns_that_matter_most_and_none_without_a_value() -> None:
    head = next(line for line in summary(report(), SUMMARY_BYTES).splitlines() if "stage" in line)
    assert head.count("|") - head.count("\\|") - 1 == 10
    blind = [
        with_result(one, memory=dict.fromkeys(one.result.memory), latency={}) for one in outcomes()
    ]
    head = next(
        line for line in summary(report(blind), SUMMARY_BYTES).splitlines() if "stage" in line
    )
    assert "arena" not in head
    assert "p50" not in head
    assert "parameters" in head


def test_publish_warns_where_it_cannot_write(tmp_path: Path) -> None:
    (warning,) = publish(report(), Path("out"), {"GITHUB_OUTPUT": str(tmp_path)})
    assert warning.startswith(f"GITHUB_OUTPUT: cannot write to {tmp_path}")


def test_publish_keeps_the_summary_below_the_limit_of_a_step(tmp_path: Path) -> None:
    place = tmp_path / "summary"
    place.write_bytes(b"x" * (SUMMARY_BYTES - 700))
    publish(report(), Path("out"), {"GITHUB_STEP_SUMMARY": str(place)})
    text = place.read_bytes()
    assert SUMMARY_BYTES - 700 < len(text) <= SUMMARY_BYTES
    assert text.endswith(b"report.md holds all of it.*\n")


@pytest.mark.parametrize("room", [-5, 0, 10, 60, 200, 600])
def test_summary_fits_and_ends_with_a_whole_line(room: int) -> None:
    base = with_result(outcomes()[0], notes=["ü" * 100] * 20)
    text = summary(report([base]), room)
    assert len(text.encode()) <= max(room, 0)
    assert text == "" or text.endswith("holds all of it.*\n")


def test_output_lines_name_the_result() -> None:
    assert output_lines(report(), Path("runs/x")).splitlines() == [
        "passed=true",
        "outcome=finished",
        "artifact=runs/x/artifacts/02-quantize.tflite",
        "tflite_bytes=14000",
        "accuracy=0.96",
    ]


def test_output_lines_are_empty_where_nothing_is_known() -> None:
    failed = replace(outcomes()[0], status="failed", result=StepResult(), artifact=None)
    lines = output_lines(report([failed]), Path("out")).splitlines()
    assert lines == ["passed=false", "outcome=failed", "artifact=", "tflite_bytes=", "accuracy="]


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


def test_error_annotations_name_the_subject_without_a_place() -> None:
    error = ModelError("is damaged", subject="m.h5")
    assert error_annotations(error, ACTIONS) == ["::error title=shrink::m.h5: is damaged"]


def test_annotations_are_for_runners_only() -> None:
    built = report(gates={"tflite_bytes": 1})
    for environment in ({}, {"GITHUB_ACTIONS": "false"}):
        assert error_annotations(RecipeError("wrong"), environment) == []
        assert gate_annotations(built, environment) == []


def test_gate_annotations_tell_missed_gates_by_level() -> None:
    limits = {"tflite_bytes": 10, "loss": {"limit": 0.01, "level": "warn"}, "arena_bytes": "1MB"}
    assert gate_annotations(report(gates=limits), ACTIONS) == [
        "::error title=gate tflite_bytes missed::quantize: 14.0 KB > 10 B",
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
    assert found["gates_missed"] == 1
    assert "quantize.training_peak_bytes" not in found
    assert "train.training_peak_bytes" in found
    assert all(isinstance(value, int | float) for value in found.values())
