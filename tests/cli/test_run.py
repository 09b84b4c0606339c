"""`shrink run` end to end; tests/oracle/test_bundled.py recomputes the figures of this run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras

from shrink.recipe.load import load_recipe
from tests.cli.conftest import FinishedRun
from tests.cli.shell import read_report, shrink, stage

STAGES = ["train", "distill", "prune", "quantize"]
STAGE_KEYS = {
    "name", "kind", "status", "duration_s", "measured", "artifact", "sha256", "size", "memory",
    "metrics", "examples", "delta", "delta_previous", "training", "latency", "skipped", "notes",
}  # fmt: skip
SIZE_KEYS = {
    "file_bytes", "gzip_bytes", "tflite_bytes", "parameters", "nonzero_parameters", "macs",
}  # fmt: skip
MEMORY_KEYS = {
    "training_peak_bytes", "training_peak_predicted_bytes", "training_peak_small_bytes",
    "training_peak_allocator_bytes",
    "training_host_peak_bytes",
    "stage_host_peak_bytes",
    "inference_peak_bytes", "arena_bytes", "arena_estimate_bytes",
    "arena_32_bytes",
    "arena_32_reference_bytes",
}  # fmt: skip
TRAINING_KEYS = {
    "replicas", "workers", "global_batch_size", "micro_batch_size", "accumulation_steps",
    "precision", "memory_limit_bytes", "oom_retries", "oom_events", "exact", "inexact_because",
    "memory_timeline", "training_peak_lower_bound",
    "epochs", "updates", "examples_per_s", "history",
}  # fmt: skip


def test_run_writes_a_report_with_every_key(finished: FinishedRun) -> None:
    report = read_report(finished.folder)
    assert report["schema_version"] == 1
    assert report["passed"] is True
    assert report["baseline"] == "train"
    assert report["environment"]["devices"] == ["CPU:0"]
    assert [s["name"] for s in report["stages"]] == STAGES
    for entry in report["stages"]:
        assert set(entry) >= STAGE_KEYS
        assert set(entry["size"]) == SIZE_KEYS
        assert set(entry["memory"]) == MEMORY_KEYS
        assert entry["status"] == "done"
    for name in STAGES[:3]:
        assert set(stage(report, name)["training"]) == TRAINING_KEYS
        assert stage(report, name)["memory"]["training_peak_bytes"] > 0
        assert stage(report, name)["memory"]["training_host_peak_bytes"] > 100e6
        memory = stage(report, name)["memory"]
        parts = memory["training_peak_allocator_bytes"], memory["training_peak_small_bytes"]
        assert memory["training_peak_bytes"] == sum(parts)
        assert stage(report, name)["training"]["training_peak_lower_bound"] is False
    assert stage(report, "quantize")["training"] is None
    assert stage(report, "quantize")["memory"]["training_peak_bytes"] is None
    assert [g["name"] for g in report["gates"]] == [
        "accuracy_drop", "tflite_bytes", "training_peak_bytes", "arena_bytes",
    ]  # fmt: skip


def test_prune_reaches_its_sparsity_and_quantize_keeps_it(finished: FinishedRun) -> None:
    report = read_report(finished.folder)
    entry = stage(report, "prune")
    model = keras.models.load_model(finished.folder / entry["artifact"], compile=False)
    for layer in model.layers:
        if hasattr(layer, "kernel"):
            kernel = layer.get_weights()[0]
            assert np.sum(kernel == 0) == round(0.5 * kernel.size)
    size = stage(report, "quantize")["size"]
    assert size["nonzero_parameters"] < 0.55 * size["parameters"]


def test_resolved_recipe_is_the_recipe_that_ran(finished: FinishedRun, tmp_path: Path) -> None:
    resolved = load_recipe(finished.folder / "recipe.resolved.yaml").recipe
    assert resolved.stages[0].model_dump()["epochs"] == 4
    task = resolved.task  # the recipe itself says nothing of it
    assert (task.loss, task.metrics) == ("sparse_categorical_crossentropy", ("accuracy",))
    assert task.from_logits is not None
    again = shrink(
        "run", finished.folder / "recipe.resolved.yaml", "--output", tmp_path / "again",
        cwd=tmp_path, store=finished.store,
    )  # fmt: skip
    assert "[4/4] quantize: cached" in again.stderr
    before, after = read_report(finished.folder), read_report(tmp_path / "again")
    assert before["recipe"] == after["recipe"]


def test_run_again_takes_everything_from_the_store(finished: FinishedRun, tmp_path: Path) -> None:
    words = finished.into(tmp_path / "out")
    # A worker could not even start: no interpreter option may break a run that needs none.
    done = shrink(*words, "--json", cwd=tmp_path, store=finished.store)
    report = json.loads(done.stdout)
    assert [s["status"] for s in report["stages"]] == ["cached"] * 4
    first = read_report(finished.folder)
    for before, after in zip(first["stages"], report["stages"], strict=True):
        for key in ("sha256", "size", "memory", "metrics", "measured", "latency", "delta"):
            assert before[key] == after[key]


def test_run_exits_1_with_a_report_when_a_gate_is_missed(
    finished: FinishedRun, tmp_path: Path
) -> None:
    words = (*finished.into(tmp_path / "out"), "--set", "gates.tflite_bytes=1KB")
    done = shrink(*words, cwd=tmp_path, store=finished.store, expect=1)
    report = read_report(tmp_path / "out")
    assert report["passed"] is False
    missed = [g for g in report["gates"] if not g["passed"]]
    assert [g["name"] for g in missed] == ["tflite_bytes"]
    assert missed[0]["value"] == stage(report, "quantize")["size"]["tflite_bytes"]
    assert "FAIL" in done.stdout


def test_run_dry_says_what_would_be_computed_and_why(finished: FinishedRun) -> None:
    arguments = [*finished.arguments, "--set", "prune.sparsity=0.7", "--dry-run", "--json"]
    rows = json.loads(shrink(*arguments, cwd=finished.cwd, store=finished.store).stdout)
    assert [(row["name"], row["status"]) for row in rows] == [
        ("train", "cached"), ("distill", "cached"), ("prune", "compute"), ("quantize", "compute"),
    ]  # fmt: skip
    assert "config.sparsity: 0.5 -> 0.7" in rows[2]["why"]
    assert rows[3]["why"] == "its input changes"
    done = read_report(finished.folder)["stages"]
    assert [row["last_s"] for row in rows] == [one["duration_s"] for one in done]


def test_report_has_no_number_that_json_does_not_know(finished: FinishedRun) -> None:
    def numbers(value: Any) -> list[float]:
        if isinstance(value, dict):
            return [n for item in value.values() for n in numbers(item)]
        if isinstance(value, list):
            return [n for item in value for n in numbers(item)]
        return [value] if isinstance(value, float) else []

    found = numbers(read_report(finished.folder))
    assert len(found) > 50
    assert all(math.isfinite(n) for n in found)
