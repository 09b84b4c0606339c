"""The report's keys, differences, notes, and reading it back."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shrink.base.errors import InputError
from shrink.base.files import write_json
from shrink.base.intervals import paired_interval
from shrink.contract.codec import from_plain
from shrink.contract.report import Origin
from shrink.contract.result import StageOutcome, StepResult
from shrink.report.config import parse_gates
from shrink.report.headline import Continuation
from tests.report.plain import build_report, read_report, render, render_report, shape_problem
from tests.report.toys import failure, outcome, outcomes, report, scores, with_result

STAGE_KEYS = [
    "name",
    "kind",
    "status",
    "duration_s",
    "measured",
    "artifact",
    "sha256",
    "size",
    "memory",
    "metrics",
    "intervals",
    "examples",
    "guess",
    "delta",
    "delta_previous",
    "details",
    "training",
    "latency",
    "skipped",
    "notes",
]


def test_build_report_has_every_key_for_every_stage() -> None:
    built = report()
    assert built["schema_version"] == 1
    assert built["passed"] is True
    assert built["recipe"] == {"name": "digits", "sha256": "cd" * 32}
    assert [sorted(stage) for stage in built["stages"]] == [sorted(STAGE_KEYS)] * 3


def test_build_report_compares_with_the_baseline_and_with_the_stage_before() -> None:
    quantize = report()["stages"][2]
    assert quantize["delta"]["tflite_bytes"] == {"value": -86_000, "ratio": 0.14}
    assert quantize["delta_previous"]["tflite_bytes"] == {"value": -36_000, "ratio": 0.28}
    interval = paired_interval(scores(98), scores(96))
    assert quantize["delta"]["accuracy"] == {
        "value": -0.02,
        "low": interval.low,
        "high": interval.high,
        "note": "cautious (wide): only a few test examples decide it",
    }
    told = (
        "accuracy: the 95 % interval of the difference is cautious (wide): only a few test "
        "examples decide it"
    )
    assert told in quantize["notes"]
    assert quantize["delta_previous"]["accuracy"]["value"] == 0


def test_build_report_gives_the_baseline_zero_differences_to_itself() -> None:
    train = report()["stages"][0]
    assert train["delta"]["tflite_bytes"] == {"value": 0, "ratio": 1.0}
    assert train["delta"]["accuracy"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert train["delta_previous"] == {}


def test_build_report_gives_null_differences_when_a_side_is_null() -> None:
    quantize = report()["stages"][2]
    assert quantize["memory"]["training_peak_bytes"] is None
    assert quantize["delta"]["training_peak_bytes"] is None


def test_build_report_gives_no_ratio_when_the_base_is_zero() -> None:
    train, prune, _ = outcomes()
    train = with_result(train, size={"macs": 0})
    built = report([train, prune], finals=("prune",))
    assert built["stages"][1]["delta"]["macs"] == {"value": 50_000, "ratio": None}
    assert built["stages"][0]["delta"]["macs"] == {"value": 0, "ratio": None}


@pytest.mark.parametrize("other", [[], [1.0] * 99, [1.0] * 99 + [math.nan]])
def test_build_report_gives_no_interval_when_scores_do_not_pair(other: list[float]) -> None:
    train, prune, _ = outcomes()
    built = report([train, replace(prune, scores={"accuracy": other})], finals=("prune",))
    assert built["stages"][1]["delta"]["accuracy"] == {"value": -0.02, "low": None, "high": None}
    assert built["stages"][1]["delta"]["loss"] == {"value": 0.0, "low": None, "high": None}


def test_build_report_explains_every_null_figure() -> None:
    notes = " ".join(report()["stages"][2]["notes"])
    assert (
        "training_peak_bytes, training_peak_predicted_bytes, training_peak_allocator_bytes, "
        "training_peak_small_bytes, training_host_peak_bytes: "
        "does not apply, this stage trains nothing" in notes
    )


def test_build_report_keeps_the_workers_own_explanation() -> None:
    train, *_ = outcomes()
    memory = {**train.result.memory, "arena_bytes": None}
    own = "arena_bytes: TFLite Micro has no kernel for FLEX"
    stage = report([with_result(train, memory=memory, notes=[own])], finals=("train",))["stages"][0]
    assert stage["notes"] == [own]


def test_build_report_explains_a_null_metric_when_a_note_only_uses_the_word() -> None:
    train, *_ = outcomes()
    stage = with_result(train, metrics={"loss": None}, notes=["loss scale 2"])
    notes = report([stage], finals=("train",))["stages"][0]["notes"]
    assert notes == [
        "loss scale 2",
        "loss: was not measured",
    ]


def test_build_report_takes_no_note_for_a_reason_that_only_names_the_metric() -> None:
    train, *_ = outcomes()
    task = "task: loss mean_squared_error (real targets); metrics mean_squared_error"
    stage = with_result(train, metrics={"mean_squared_error": None}, notes=[task])
    built = report([stage], {"mean_squared_error": 1.0}, finals=("train",))
    why = "mean_squared_error: was not measured"
    assert built["stages"][0]["notes"] == [task, why]
    assert built["gates"][0]["reason"] == why


def test_build_report_survives_a_result_without_anything() -> None:
    train, *_ = outcomes()
    stage = report([replace(train, result=StepResult())], finals=("train",))["stages"][0]
    assert set(stage["size"].values()) == set(stage["memory"].values()) == {None}
    assert stage["latency"] == {"p50_ms": None, "p90_ms": None, "threads": None}
    assert stage["metrics"] == {}
    assert any("tflite_bytes" in note and "was not measured" in note for note in stage["notes"])


def failing() -> list[StageOutcome]:
    train, _, _ = outcomes()
    error = failure(type="StageError", message="NaN loss", hint=None)
    return [
        train,
        StageOutcome("prune", "prune", "failed", 3.0, previous="train", error=error),
        StageOutcome("quantize", "quantize", "skipped", previous="prune"),
    ]


def test_build_report_has_null_groups_when_a_stage_failed() -> None:
    built = report(failing())
    _, prune, quantize = built["stages"]
    for stage in (prune, quantize):
        groups = [stage[k] for k in ("size", "memory", "metrics", "training", "latency")]
        assert groups == [None] * 5
        assert stage["delta"] == stage["delta_previous"] == {}
    assert prune["error"]["message"] == "NaN loss"
    assert "error" not in quantize
    assert built["passed"] is False


def test_build_report_has_null_differences_when_the_baseline_failed() -> None:
    train = replace(
        outcomes()[0], status="failed", result=StepResult(), error=failure(message="no")
    )
    built = report([train, outcome("prune", 90, 50, "train")], finals=("prune",))
    assert set(built["stages"][1]["delta"].values()) == {None}


def test_build_report_keeps_cached_measurements_apart() -> None:
    measured = {"at": "then", "machine": "there"}
    train = with_result(replace(outcomes()[0], status="cached"), measured=measured)
    stage = report([train], finals=("train",))["stages"][0]
    assert stage["status"] == "cached"
    assert stage["measured"] == {"at": "then", "machine": "there"}
    assert stage["size"]["tflite_bytes"] == 100_000


@pytest.mark.parametrize("as_folder", [True, False])
def test_read_report_returns_what_was_built(tmp_path: Path, as_folder: bool) -> None:
    built = report(failing(), {"accuracy_drop": 0.02})
    write_json(tmp_path / "report.json", built)
    assert read_report(tmp_path if as_folder else tmp_path / "report.json") == built


def broken(**changes: Any) -> str:
    return json.dumps({**report(gates={"accuracy": 0.5}), **changes})


def without_size() -> str:
    built = report()
    del built["stages"][1]["size"]
    return json.dumps(built)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"schema_version": NaN}', "is not JSON"),
        ('{"schema_version": 1e999}', "is not JSON"),
        ("[]", "is not a report"),
        ("{}", "is not a report"),
        ('{"schema_version": 1}', "key 'passed' is missing"),
        (broken(schema_version=2), "schema version 2"),
        (broken(stages=[3]), r"stages\[0\]: expected an object, not 3"),
        (broken(gates={}), "gates: expected a list, not {}"),
        (broken(gates=[{"name": "accuracy"}]), r"gates\[0\]: key 'limit' is missing"),
        (without_size(), r"stages\[1\]: key 'size' is missing"),
    ],
)
def test_read_report_names_the_file_and_the_problem(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "report.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_report(tmp_path)
    assert str(file) in str(caught.value)


def test_read_report_says_that_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no report here"):
        read_report(tmp_path / "nowhere")


def test_read_report_refuses_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not JSON"):
        read_report(tmp_path)


def test_report_without_data_has_all_but_metrics_and_can_be_shown() -> None:
    nothing: dict[str, Any] = {"metrics": {}, "examples": None, "guess": None}
    told = {"notes": ["metrics: not measured, as no data was named"]}
    stages = [replace(with_result(s, **nothing, **told), scores={}) for s in outcomes()]
    origin = {"run": "before", "stage": "train", "metrics": {"accuracy": 0.5, "loss": 1.0}}
    built = build_report(
        recipe_name="r",
        recipe_sha256="cd" * 32,
        baseline="train",
        environment={},
        outcomes=stages,
        gates=parse_gates({"tflite_bytes": 20_000}),
        finals=("quantize",),
        chain=Continuation(from_plain(Origin, origin)),
    )
    assert built["passed"]
    assert built["warnings"] == []
    last = built["stages"][-1]
    assert (last["metrics"], last["examples"], last["intervals"]) == ({}, None, {})
    assert last["delta"]["tflite_bytes"]["ratio"] == 0.14
    assert shape_problem(built) is None
    shown = render(built)
    assert json.loads(shown["metrics.json"])["quantize.tflite_bytes"] == 14_000
    assert "Metrics were not measured: no data was named." in shown["model-card.md"]
    assert "| stage | status |" in shown["report.md"]
    for name in ("report.md", "report.html"):
        assert "not measured, as no data was named" in shown[name]
    stream = io.StringIO()
    render_report(built, Console(file=stream, width=100), with_notes=True)
    assert "not measured, as no data was named" in stream.getvalue()
