"""What the store keeps of a step is read as it was written, by this version or the one before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shrink.base.measured import Measured, Note, reasons
from shrink.contract.codec import from_plain, to_plain
from shrink.contract.details import Details, MetricDelta
from shrink.contract.result import StepManifest, StepResult

MEMORY = {
    "inference_peak_bytes": None,
    "arena_bytes": 24_000,
    "arena_estimate_bytes": 20_000,
    "training_peak_predicted_bytes": None,
    "training_peak_bytes": 40_000_000,
    "training_peak_small_bytes": None,
    "training_host_peak_bytes": 700_000_000,
}
NOISE = "inference memory is less than 1 MiB above the runtime's own, too small to measure"


def written() -> dict[str, Any]:
    """A manifest as the version before wrote it: its notes are texts, each figure has a key."""
    result = {
        "size": {"file_bytes": 9, "gzip_bytes": 8, "tflite_bytes": 7, "parameters": 6},
        "memory": MEMORY,
        "metrics": {"accuracy": 0.5, "loss": 1.25},
        "examples": 15,
        "latency": {"p50_ms": 0.25, "p90_ms": 0.5, "threads": 1, "examples": 8},
        "guess": {"metric": "accuracy", "value": 0.1, "classes": ["a"], "num_classes": 1},
        "training": {"replicas": 1, "oom_events": [], "history": {"loss": [0.5, 0.1]}},
        "skipped": [{"layer": "conv", "reason": "one channel"}],
        "notes": ["task: loss mean_squared_error", f"inference_peak_bytes: {NOISE}"],
        "warnings": [],
        "details": {"task": {"outputs": []}, "layers": [{"name": "conv"}], "later": 1},
        "splits": {"test_given": True, "test": 15},
        "measured": {"at": "2026-01-02T03:04:05Z", "machine": "bench"},
        "timing": {"stage_s": 1.0, "measure_s": 2.0},
        "devices": ["CPU:0"],
        "data": {"examples": {"test": 15}, "classes": None},
        "duration_s": 3.0,
    }
    files = {"artifact": {"sha256": "ab", "size": 9, "suffix": ".keras"}}
    return {"version": 1, "key": "k", "files": files, "result": result, "digest": "cd"}


def test_a_manifest_of_the_version_before_is_read_and_written_again_as_it_was() -> None:
    read = from_plain(StepManifest, written())
    assert to_plain(read) == written()
    assert [note.figures for note in read.result.notes] == [(), ("inference_peak_bytes",)]
    assert read.result.figure("inference_peak_bytes") is None
    assert read.result.figure("arena_bytes") == 24_000
    assert read.result.details is not None
    assert read.result.details.layers[0].name == "conv"


def test_details_of_a_stage_of_another_package_are_made_plain() -> None:
    told = {"file": Path("a/b"), "rows": ({"note": Note("x")}, MetricDelta(value=0.5))}
    sent = to_plain(StepResult(details=from_plain(Details, told)))["details"]
    delta = {"value": 0.5, "low": None, "high": None}
    assert json.loads(json.dumps(sent)) == {"file": "a/b", "rows": [{"note": "x"}, delta]}


def test_a_reason_keeps_its_figures_on_the_way_to_the_parent() -> None:
    notes = reasons({"p50_ms": Measured[float](None, "died"), "p90_ms": Measured(None, "died")})
    sent = StepResult(notes=(Note("plain"), *notes))
    read = from_plain(StepResult, to_plain(sent))
    assert read == sent
    assert [note.figures for note in read.notes] == [(), ("p50_ms", "p90_ms")]
