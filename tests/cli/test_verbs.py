"""The single verbs: each is a recipe of one stage, and they chain through run folders."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from shrink.recipe.load import load_recipe
from shrink.tflite.convert import convert
from tests.cli.conftest import FinishedRun
from tests.cli.shell import read_report, shrink, stage
from tests.forks import INFERENCE


def emitted(finished: FinishedRun, folder: Path, *arguments: str) -> Any:
    """Return the recipe that a verb prints, read back."""
    done = shrink(*arguments, "--emit-recipe", cwd=finished.cwd, store=finished.store)
    path = folder / "emitted.yaml"
    path.write_text(done.stdout, encoding="utf-8")
    return load_recipe(path).recipe


def test_every_key_is_a_flag(finished: FinishedRun, tmp_path: Path) -> None:
    recipe = emitted(
        finished, tmp_path,
        "prune", "out/artifacts/00-train.keras", "--data", "digits", "--sparsity", "0.25",
        "--schedule", "constant", "--exclude", "[logits]", "--epochs", "3",
        "--global-batch-size", "32", "--optimizer-learning-rate", "1e-4", "--optimizer-name", "sgd",
        "--optimizer-momentum", "0.9", "--memory-limit", "1GB", "--seed", "5",
    )  # fmt: skip
    (prune,) = recipe.stages
    assert prune.model_dump(include={"sparsity", "schedule", "exclude", "epochs"}) == {
        "sparsity": 0.25, "schedule": "constant", "exclude": ("logits",), "epochs": 3,
    }  # fmt: skip
    assert recipe.training.global_batch_size == 32
    assert recipe.training.memory_limit == 1_000_000_000
    assert recipe.training.seed == 5
    assert recipe.training.optimizer.model_dump(exclude_none=True) == {
        "name": "sgd", "learning_rate": 1e-4, "schedule": "constant", "warmup": 0.0,
        "momentum": 0.9,
    }  # fmt: skip


def test_distill_takes_models_or_a_width(finished: FinishedRun, tmp_path: Path) -> None:
    recipe = emitted(
        finished, tmp_path, "distill", "--teacher", "out/artifacts/00-train.keras",
        "--student", "out/artifacts/01-distill.keras", "--data", "digits", "--temperature", "2",
    )  # fmt: skip
    assert recipe.model.endswith("00-train.keras")
    assert recipe.stages[0].student.endswith("01-distill.keras")


@pytest.mark.slow
def test_distill_cuts_the_student_from_a_model_file(finished: FinishedRun, tmp_path: Path) -> None:
    shrink(
        "distill", "--teacher", "out/artifacts/00-train.keras", "--student",
        "width=0.5,inherit=true", "--data", "digits", "--epochs", "2", "--control",
        "--output", tmp_path / "cut", cwd=finished.cwd, store=finished.store,
    )  # fmt: skip
    report = read_report(tmp_path / "cut")
    teacher, student = stage(report, "baseline"), stage(report, "distill")
    assert student["size"]["parameters"] < 0.5 * teacher["size"]["parameters"]
    control = student["details"]["control"]
    assert control["taught"]["accuracy"] == pytest.approx(student["metrics"]["accuracy"])
    assert control["teacher"]["accuracy"] == pytest.approx(teacher["metrics"]["accuracy"])
    assert any(note.startswith("control: after") for note in student["notes"])
    assert student["details"]["teacher_cache"]["bytes"] == 1257 * 10 * 4


def test_verbs_chain_through_run_folders(finished: FinishedRun, tmp_path: Path) -> None:
    # `out` ends in a .tflite file, which cannot be pruned; its Keras artifacts can.
    done = shrink("prune", "out", cwd=finished.cwd, store=finished.store, expect=3)
    assert "cannot start from a .tflite" in done.stderr
    pruned = tmp_path / "pruned"
    shrink(
        "prune", "out/artifacts/01-distill.keras", "--data", "digits", "--epochs", "0",
        "--sparsity", "0.3", "--output", pruned, cwd=finished.cwd, store=finished.store,
    )  # fmt: skip
    quantized = tmp_path / "quantized"
    shrink(
        "quantize", pruned, "--scheme", "float16", "--output", quantized,
        cwd=finished.cwd, store=finished.store,
    )  # fmt: skip
    report = read_report(quantized)
    assert [s["name"] for s in report["stages"]] == ["baseline", "quantize"]
    before, after = report["stages"][0]["size"], report["stages"][1]["size"]
    assert 0.45 < after["tflite_bytes"] / before["tflite_bytes"] < 0.65
    kernels = 9 * 24 + 9 * 24 * 32 + 9 * 32 * 64 + 64 * 10
    assert before["parameters"] - before["nonzero_parameters"] >= round(0.3 * kernels) - 4


def test_profile_measures_one_batch_size_and_traces_it(
    finished: FinishedRun, tmp_path: Path
) -> None:
    done = shrink(
        "profile", "out/artifacts/00-train.keras", "--batch-size", "128", "--json",
        "--trace", tmp_path / "logs", cwd=finished.cwd, store=finished.store,
    )  # fmt: skip
    result = json.loads(done.stdout)
    assert result["batch_size"] == 128
    layers = {row["name"]: row for row in result["layers"]}
    assert layers["conv2_conv"]["activation_bytes"] == 128 * 8 * 8 * 64 * 4
    assert layers["conv2_conv"]["parameter_bytes"] == 9 * 48 * 64 * 4
    # The backward pass needs the outputs of the two large convolutions at the same time.
    assert result["training_peak_bytes"] > 128 * 8 * 8 * (48 + 64) * 4
    assert "training_peak_predicted_bytes" in result
    assert "largest_batch_size" in result
    (trace,) = (tmp_path / "logs").glob("plugins/profile/*/*.xplane.pb")
    assert result["trace"] == [str(trace)]
    # Whether it is a trace of training is told by the names of the operations that ran.
    assert b"Conv2DBackpropFilter" in trace.read_bytes()


def test_inspect_lists_operators_with_their_types(finished: FinishedRun) -> None:
    done = shrink("inspect", "out", "--json", cwd=finished.cwd, store=finished.store)
    found = json.loads(done.stdout)
    assert found["inputs"][0]["dtype"] == "int8"
    assert found["float_operators"] == []
    names = [operator["name"] for operator in found["operators"]]
    assert names.count("CONV_2D") == 3
    assert (
        found["arena_bytes"]
        == stage(read_report(finished.folder), "quantize")["memory"]["arena_bytes"]
    )
    table = shrink("inspect", "out", cwd=finished.cwd, store=finished.store).stdout
    assert "FULLY_CONNECTED" in table


def test_export_writes_a_saved_model_with_the_same_outputs(
    finished: FinishedRun, tmp_path: Path
) -> None:
    source = finished.folder / "artifacts" / "01-distill.keras"
    shrink(
        "export", source, "--format", "savedmodel", "--output", tmp_path / "saved",
        cwd=finished.cwd, store=finished.store,
    )  # fmt: skip
    x = np.random.default_rng(0).uniform(0, 16, size=(5, 8, 8, 1)).astype(np.float32)
    expected = keras.models.load_model(source, compile=False)(x)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.serve(x), expected, rtol=1e-5, atol=1e-5)
    again = shrink(
        "export", source, "--format", "savedmodel", "--output", tmp_path / "saved",
        cwd=finished.cwd, store=finished.store, expect=2,
    )  # fmt: skip
    assert "--force" in again.stderr


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")
def test_export_writes_a_c_array_that_compiles_to_the_same_bytes(
    finished: FinishedRun, tmp_path: Path
) -> None:
    done = shrink(
        "export", "out", "--format", "cc-array", "--output", tmp_path,
        cwd=finished.cwd, store=finished.store,
    )  # fmt: skip
    source = next(Path(line) for line in done.stdout.splitlines() if line.endswith(".cc"))
    symbol = f"g_{source.stem}"
    main = tmp_path / "main.cc"
    main.write_text(
        f'#include <cstdint>\n#include <cstdio>\n#include "{source.stem}.h"\n'
        f"int main() {{ if (reinterpret_cast<std::uintptr_t>({symbol}) % 16) return 1;\n"
        f"  std::fwrite({symbol}, 1, {symbol}_len, stdout); }}\n",
        encoding="utf-8",
    )
    program = tmp_path / "program"
    subprocess.run(
        ["g++", "-std=c++11", "-Wall", "-Werror", main, source, "-o", program], check=True
    )
    printed = subprocess.run([program], capture_output=True, check=True).stdout
    assert printed == (finished.folder / "artifacts" / "03-quantize.tflite").read_bytes()


def test_report_and_diff_read_what_runs_left(finished: FinishedRun, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished.folder, copy)
    (copy / "report.md").unlink()
    shown = shrink("report", copy, cwd=finished.cwd, store=finished.store)
    assert "quantize" in shown.stdout
    assert (copy / "report.md").read_text(encoding="utf-8") == (
        finished.folder / "report.md"
    ).read_text(encoding="utf-8")
    same = shrink("diff", "out", copy, cwd=finished.cwd, store=finished.store)
    assert "no figure, stage or gate changed" in same.stdout
    report = read_report(copy)
    stage(report, "quantize")["size"]["tflite_bytes"] += 1000
    (copy / "report.json").write_text(json.dumps(report), encoding="utf-8")
    changed = json.loads(
        shrink("diff", "out", copy, "--json", cwd=finished.cwd, store=finished.store).stdout
    )
    assert "tflite_bytes" in json.dumps(changed)


def test_data_check_counts_every_class(finished: FinishedRun) -> None:
    done = shrink("data", "check", "digits", "--json", cwd=finished.cwd, store=finished.store)
    found = json.loads(done.stdout)
    assert {name: s["examples"] for name, s in found["splits"].items()} == {
        "train": 1257, "validation": 180, "test": 360,
    }  # fmt: skip
    assert sum(found["splits"]["test"]["classes"].values()) == 360
    assert len(found["splits"]["train"]["classes"]) == 10
    assert found["bad"] == []


@pytest.mark.slow
def test_quantize_needs_no_data_where_the_scheme_needs_no_examples(tmp_path: Path) -> None:
    inputs = keras.layers.Input((8, 8, 1))
    flat = keras.layers.Flatten()(inputs)
    model = keras.Model(inputs, keras.layers.Dense(64, activation="relu")(flat))
    model.save(tmp_path / "model.keras")
    model.export(str(tmp_path / "graph"))
    (tmp_path / "float32.tflite").write_bytes(convert(model, "float32").content)
    words = ("--scheme", "float16", "--json")
    store = tmp_path / "store"
    done = shrink(
        "quantize", "model.keras", *words, cwd=tmp_path, store=store, measured=[INFERENCE]
    )
    report = json.loads(done.stdout)
    assert (report["passed"], report["warnings"]) == (True, [])
    last = stage(report, "quantize")
    assert (last["metrics"], last["examples"]) == ({}, None)
    assert last["latency"]["p50_ms"] > 0
    assert "metrics: not measured, as no data was named" in last["notes"]
    assert last["details"]["task"] is None
    assert "task: none, as no data was named" in last["notes"]
    # 64 x 64 weights of 2 bytes; as float32 they alone are 16,384.
    sizes = [last["size"]["tflite_bytes"]]
    for name, target in (("graph", "a.tflite"), ("float32.tflite", "b.tflite")):
        to = ("--output", target)
        shrink("quantize", name, *words, *to, cwd=tmp_path, store=tmp_path / "store")
        sizes.append((tmp_path / target).stat().st_size)
    assert all(8_192 < size < 12_000 for size in sizes), sizes
