"""Gates: where they look, what decides, and what a null means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shrink.base.figures import unit_hint
from shrink.contract.result import StageOutcome, StepResult
from shrink.report.config import parse_gates
from tests.report.plain import build_report, missed_sentences, verdict
from tests.report.toys import outcome, outcomes, report, with_result


def gate(name: str, limit: Any, stages: list[StageOutcome] | None = None) -> dict[str, Any]:
    """The one result of a one-gate run."""
    (result,) = report(stages, {name: limit})["gates"]
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize(
    ("name", "limit", "value", "passed"),
    [
        ("tflite_bytes", 14_000, 14_000, True),
        ("tflite_bytes", 13_999, 14_000, False),
        ("accuracy", 0.96, 0.96, True),
        ("accuracy", 0.97, 0.96, False),
        ("accuracy_drop", 0.02, 0.02, True),
        ("accuracy_drop", 0.019, 0.02, False),
        ("loss_rise", 0, 0, True),
        ("loss", 0.05, 0.1, False),
        ("arena_bytes", "64KB", 24_000, True),
        ("p90_ms", 0.4, 0.5, False),
    ],
)
def test_check_gates_looks_at_the_final_stage(
    name: str, limit: Any, value: float, passed: bool
) -> None:
    result = gate(name, limit)
    assert (result["value"], result["passed"], result["stage"]) == (value, passed, "quantize")
    assert result["level"] == "fail"


def test_check_gates_counts_a_gain_as_a_negative_drop() -> None:
    stages = [outcome("train", 90, 10, None), outcome("quantize", 95, 10, "train")]
    assert gate("accuracy_drop", 0, stages)["value"] == -0.05


def test_check_gates_looks_at_the_largest_training_peak_of_all_stages() -> None:
    train, prune, quantize = outcomes()
    memory = {**prune.result.memory, "training_peak_bytes": 90_000_000}
    result = gate(
        "training_peak_bytes", "50MB", [train, with_result(prune, memory=memory), quantize]
    )
    assert (result["value"], result["stage"], result["passed"]) == (90_000_000, "prune", False)


def test_check_gates_misses_when_a_training_peak_is_unknown() -> None:
    train, prune, quantize = outcomes()
    note = "training_peak_bytes: the allocator keeps no statistics"
    memory = {**prune.result.memory, "training_peak_bytes": None}
    blind = with_result(prune, memory=memory, notes=[note])
    result = gate("training_peak_bytes", "2GB", [train, blind, quantize])
    assert (result["value"], result["passed"], result["reason"]) == (None, False, note)


def test_check_gates_sums_durations() -> None:
    result = gate("duration_s", 29)
    assert (result["value"], result["stage"], result["passed"]) == (30.0, None, False)


def test_check_gates_looks_at_the_named_stage() -> None:
    assert gate("tflite_bytes", {"limit": 1, "stage": "prune"})["value"] == 50_000
    assert gate("duration_s", {"limit": 29, "stage": "prune"})["value"] == 10.0
    assert gate("training_peak_bytes", {"limit": "1GB", "stage": "train"})["value"] == 40_000_000


def test_check_gates_gives_one_result_per_branch() -> None:
    stages = [*outcomes(), outcome("quantize-2", 90, 9_000, "train")]
    built = report(stages, {"accuracy_drop": 0.02}, finals=("quantize", "quantize-2"))
    assert [(g["stage"], g["passed"]) for g in built["gates"]] == [
        ("quantize", True),
        ("quantize-2", False),
    ]
    assert built["passed"] is False


def test_check_gates_misses_with_the_reason_when_the_figure_is_null() -> None:
    train, prune, quantize = outcomes()
    memory = {**quantize.result.memory, "arena_bytes": None}
    note = "arena_bytes: TFLite Micro has no kernel for FLEX"
    stage = with_result(quantize, memory=memory, notes=[note])
    result = gate("arena_bytes", "64KB", [train, prune, stage])
    assert (result["value"], result["passed"], result["reason"]) == (None, False, note)


@pytest.mark.parametrize("name", ["top5_accuracy", "top5_accuracy_drop", "mean_squared_error"])
def test_check_gates_misses_when_the_metric_is_not_measured(name: str) -> None:
    result = gate(name, 0.5)
    assert result["value"] is None
    assert result["passed"] is False
    assert "has no" in result["reason"]


def test_check_gates_misses_when_the_final_stage_did_not_run() -> None:
    train, prune, quantize = outcomes()
    failed = replace(prune, status="failed", result=StepResult())
    skipped = replace(quantize, status="skipped", result=StepResult())
    assert gate("tflite_bytes", 1, [train, failed, skipped])["reason"] == (
        "stage quantize was skipped"
    )
    assert gate("loss", {"limit": 1, "stage": "prune"}, [train, failed, skipped])["reason"] == (
        "stage prune failed"
    )
    assert gate("loss", {"limit": 1, "stage": "x"})["reason"] == "stage x is not part of the run"


def test_check_gates_misses_a_drop_when_the_baseline_has_no_metric() -> None:
    train, prune, quantize = outcomes()
    result = gate("accuracy_drop", 0.5, [with_result(train, metrics={}), prune, quantize])
    assert result["reason"] == "the baseline train has no accuracy"


def test_check_gates_passes_with_confidence_when_the_interval_reaches_the_limit() -> None:
    result = gate("accuracy_drop", {"limit": 0.01, "confidence": 0.95})
    assert result["value"] == 0.02
    assert result["low"] < 0.01 < result["high"]
    assert result["passed"] is True
    assert result["reason"] == "the interval is cautious (wide): only a few test examples decide it"
    assert "reason" not in gate("accuracy_drop", {"limit": 0.03, "confidence": 0.95})


def test_check_gates_misses_with_confidence_when_the_interval_lies_beyond() -> None:
    stages = [outcome("train", 98, 10, None), outcome("quantize", 60, 10, "train")]
    result = gate("accuracy_drop", {"limit": 0.1, "confidence": 0.95}, stages)
    assert result["low"] > 0.1
    assert result["passed"] is False


def test_check_gates_uses_the_gates_own_confidence() -> None:
    # A drop of 8 of 100 without gains: beyond 0.02 at 80 %, not at 99.9 %.
    stages = [outcome("train", 98, 10, None), outcome("quantize", 90, 10, "train")]
    assert not gate("accuracy_drop", {"limit": 0.02, "confidence": 0.8}, stages)["passed"]
    assert gate("accuracy_drop", {"limit": 0.02, "confidence": 0.999}, stages)["passed"]


def test_check_gates_judges_a_rise_by_its_own_direction() -> None:
    train, quantize = outcome("train", 98, 10, None), outcome("quantize", 98, 10, "train")
    before, after = [0.1, 0.2, 0.3] * 10, [1.1, 1.2, 1.31] * 10
    stages = [
        replace(with_result(train, metrics={"loss": 0.2}), scores={"loss": before}),
        replace(with_result(quantize, metrics={"loss": 1.2}), scores={"loss": after}),
    ]
    assert not gate("loss_rise", {"limit": 0.9, "confidence": 0.95}, stages)["passed"]
    assert gate("loss_rise", {"limit": 1.1, "confidence": 0.95}, stages)["passed"]


def test_check_gates_says_so_when_a_confidence_has_no_scores() -> None:
    train, prune, quantize = outcomes()
    result = gate(
        "accuracy_drop",
        {"limit": 0.01, "confidence": 0.95},
        [train, prune, replace(quantize, scores={})],
    )
    assert result["passed"] is False
    assert "point value decides" in result["reason"]


def test_all_passed_ignores_warnings() -> None:
    built = report(gates={"tflite_bytes": {"limit": 1, "level": "warn"}})
    assert built["gates"][0]["passed"] is False
    assert built["passed"] is True


def test_check_gates_finds_no_stage_when_the_run_is_empty() -> None:
    built = report([], {"tflite_bytes": 1, "duration_s": 1, "training_peak_bytes": 1}, finals=())
    assert [g["passed"] for g in built["gates"]] == [False] * 3
    assert all("reason" in g for g in built["gates"])


@pytest.mark.parametrize(
    ("name", "ratio", "share", "passed"),
    [
        # Against train's 100,000 bytes, 98 % and 50,000 MACs.
        ("tflite_bytes", 0.14, 0.14, True),
        ("tflite_bytes", 0.1, 0.14, False),
        ("macs", 0.5, 1.0, False),
        ("loss", 1, 1.0, True),
        ("accuracy", 0.97, 0.96 / 0.98, True),
        ("accuracy", 0.99, 0.96 / 0.98, False),
    ],
)
def test_check_gates_compares_a_ratio_with_the_baseline_of_the_run(
    name: str, ratio: float, share: float, passed: bool
) -> None:
    result = gate(name, {"ratio": ratio})
    assert result["value"] == pytest.approx(share)
    assert (result["limit"], result["passed"], result["relative_to"]) == (ratio, passed, "train")
    assert result["current"] / result["reference"] == result["value"]


def test_check_gates_misses_a_ratio_of_what_the_baseline_does_not_have() -> None:
    train, prune, quantize = outcomes()
    blind = with_result(train, memory={**train.result.memory, "arena_bytes": None})
    result = gate("arena_bytes", {"ratio": 0.5}, [blind, prune, quantize])
    assert (result["value"], result["passed"]) == (None, False)
    assert result["reason"].startswith("the baseline train has none to compare with: arena_bytes")
    empty = with_result(train, size={**train.result.size, "macs": 0})
    result = gate("macs", {"ratio": 0.5}, [empty, prune, quantize])
    assert (result["value"], result["passed"]) == (None, False)
    assert "has 0" in result["reason"]


def test_check_gates_compares_training_peaks_with_the_baselines_own() -> None:
    train, prune, quantize = outcomes()
    memory = {**prune.result.memory, "training_peak_bytes": 10_000_000}
    result = gate(
        "training_peak_bytes", {"ratio": 0.25}, [train, with_result(prune, memory=memory), quantize]
    )
    assert (result["value"], result["stage"], result["passed"]) == (0.25, "prune", True)


def test_a_share_in_a_run_that_did_not_finish_is_shown_and_not_decided() -> None:
    train, prune, quantize = outcomes()
    half = with_result(prune, memory={**prune.result.memory, "training_peak_bytes": 20_000_000})
    failed = replace(quantize, status="failed", result=StepResult())
    result = gate("training_peak_bytes", {"ratio": 0.6}, [train, half, failed])
    assert (result["value"], result["relative_to"], result["judged"]) == (0.5, "train", False)
    assert (result["current"], result["reference"]) == (20_000_000, 40_000_000)
    assert "did not finish" in result["reason"]


def test_gates_of_a_run_that_was_to_stop_early_are_not_decided_on_what_ran() -> None:
    built = build_report(
        recipe_name="digits",
        recipe_sha256="",
        baseline="train",
        environment={},
        outcomes=outcomes()[:1],
        gates=parse_gates(
            {"tflite_bytes": 1, "loss": {"limit": 0, "stage": "train"}, "macs": {"ratio": 0.5}}
        ),
        finals=("train",),
        planned_finals=("quantize",),
    )
    found = {g["name"]: (g["stage"], g["passed"], g.get("judged", True)) for g in built["gates"]}
    assert found == {
        "tflite_bytes": ("quantize", False, False),
        "loss": ("train", False, True),
        "macs": ("quantize", False, False),
    }
    assert verdict(built) == "FAILED: 1 of 3 gates missed: loss"
    del built["gates"][1]
    built["passed"] = True
    assert verdict(built) == "FINISHED, 2 of 2 gates not checked"


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (
            {"tflite_bytes": "10KB"},
            "Gate tflite_bytes of quantize missed: 14.0 KB > 10.0 KB.",
        ),
        (
            {"tflite_bytes": 64},
            "Gate tflite_bytes of quantize missed: 14.0 KB > 64 B (the limit is 64 bytes; if KB "
            "are meant, write 64KB).",
        ),
        (
            {"accuracy": 0.97},
            "Gate accuracy of quantize missed: 96.00 % < 97 %.",
        ),
        (
            {"accuracy_drop": 0.005},
            "Gate accuracy_drop of quantize missed: 2.00 points > 0.5 points.",
        ),
        (
            {"macs": {"ratio": 0.5}},
            "Gate macs of quantize missed: 1.00x (50.0 K of 50.0 K) > 0.5x of train.",
        ),
        ({"duration_s": 20}, "Gate duration_s missed: 30.0 s > 20.0 s."),
        (
            {"top5_accuracy": 0.5},
            "Gate top5_accuracy of quantize missed: the stage has no top5_accuracy.",
        ),
    ],
)
def test_missed_sentences_begin_with_what_missed(limits: dict[str, Any], sentence: str) -> None:
    assert missed_sentences(report(gates=limits)) == [sentence]


@pytest.mark.parametrize(
    ("size", "limit", "hint"),
    [
        (65_200, 64_000, "if 64 KB are 65,536 bytes, write 64KiB"),
        (1_048_576, 1_000_000, "if 1 MB are 1,048,576 bytes, write 1MiB"),
        (65_537, 64_000, ""),
        (65_200, 64_100, ""),
    ],
)
def test_a_limit_that_is_missed_by_the_meaning_of_kb(size: int, limit: int, hint: str) -> None:
    assert unit_hint(size, limit) == hint
