"""Outcomes of a small run: train, prune, quantize on 100 test examples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shrink.contract.codec import from_plain, to_plain
from shrink.contract.report import Environment, Failure
from shrink.contract.result import StageOutcome, StepResult
from shrink.report.config import parse_gates
from tests.report.plain import build_report

EXAMPLES = 100


def scores(correct: int) -> list[float]:
    return [1.0] * correct + [0.0] * (EXAMPLES - correct)


def outcome(
    name: str, correct: int, tflite_bytes: int, previous: str | None, **changes: Any
) -> StageOutcome:
    """A finished stage; `training=False` for one that trains nothing."""
    trains = changes.pop("training", True)
    result: dict[str, Any] = {
        "measured": {"at": "2026-01-02T03:04:05Z", "machine": "bench"},
        "size": {
            "file_bytes": 3 * tflite_bytes,
            "gzip_bytes": tflite_bytes // 2,
            "tflite_bytes": tflite_bytes,
            "parameters": tflite_bytes // 4,
            "nonzero_parameters": tflite_bytes // 4,
            "macs": 50_000,
        },
        "memory": {
            "training_peak_bytes": 40_000_000 if trains else None,
            "training_peak_predicted_bytes": 41_000_000 if trains else None,
            "training_peak_allocator_bytes": 39_700_000 if trains else None,
            "training_peak_small_bytes": 300_000 if trains else None,
            "training_host_peak_bytes": 700_000_000 if trains else None,
            "stage_host_peak_bytes": 750_000_000,
            "inference_peak_bytes": 2_000_000,
            "arena_bytes": 24_000,
            "arena_estimate_bytes": 20_000,
            "arena_32_bytes": 23_000,
            "arena_32_reference_bytes": 22_800,
        },
        "metrics": {"accuracy": correct / EXAMPLES, "loss": 0.1},
        "examples": EXAMPLES,
        "training": {"replicas": 1, "epochs": 2, "history": {"loss": [0.5, 0.1]}}
        if trains
        else None,
        "latency": {"p50_ms": 0.25, "p90_ms": 0.5, "threads": 1},
        "skipped": [],
        "notes": [],
    }
    base = StageOutcome(
        name=name,
        kind=name,
        status="done",
        duration_s=10.0,
        artifact=f"artifacts/{name}.keras",
        sha256="ab" * 32,
        previous=previous,
        result=from_plain(StepResult, result),
        scores={"accuracy": scores(correct)},
    )
    return replace(base, **changes)


def outcomes() -> list[StageOutcome]:
    return [
        outcome("train", 98, 100_000, None),
        outcome("prune", 96, 50_000, "train"),
        outcome(
            "quantize",
            96,
            14_000,
            "prune",
            training=False,
            artifact="artifacts/02-quantize.tflite",
        ),
    ]


def with_result(base: StageOutcome, **changes: Any) -> StageOutcome:
    """The outcome with some of its worker's result replaced."""
    return replace(base, result=from_plain(StepResult, {**to_plain(base.result), **changes}))


def failure(**told: Any) -> Failure:
    """What a failed stage says of its error."""
    return from_plain(Failure, told)


def report_naming(*stages: dict[str, Any]) -> dict[str, Any]:
    """report.json of finished stages with these keys, such as `artifact` and `sha256`."""
    built = report(outcomes()[:1])
    return built | {"stages": [{**built["stages"][0], **stage} for stage in stages]}


def report(
    stages: list[StageOutcome] | None = None,
    gates: dict[str, Any] | None = None,
    finals: tuple[str, ...] = ("quantize",),
    baseline: str = "train",
    **environment: Any,
) -> dict[str, Any]:
    return build_report(
        recipe_name="digits",
        recipe_sha256="cd" * 32,
        baseline=baseline,
        environment=from_plain(
            Environment,
            {"shrink": "0.1", "tensorflow": "2.21", "devices": ["CPU:0"], **environment},
        ),
        outcomes=outcomes() if stages is None else stages,
        gates=parse_gates(gates or {}),
        finals=finals,
    )
