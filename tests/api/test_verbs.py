"""The Python interface does what the command line does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from shrink.base.files import sha256
from tests import forks
from tests.cli.shell import shrink


def call(function: str, folder: Path, store: Path, **keys: Any) -> Any:
    folder.mkdir(exist_ok=True)
    environment = {"SHRINK_CACHE_DIR": str(store), "NO_COLOR": "1"}
    return forks.call(
        "tests.api.calls", function, environment=environment, folder=str(folder), **keys
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and its data, which tests copy."""
    folder = tmp_path_factory.mktemp("saved")
    call("save_toy", folder, folder / "store")
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    for name in ("toy.keras", "toy.npz"):
        shutil.copyfile(saved / name, tmp_path / name)
    return tmp_path


def toy(function: str, folder: Path) -> Any:
    return call(function, folder, folder / "store")


def test_python_and_the_command_line_leave_the_same_bytes(folder: Path) -> None:
    store = folder / "store"
    flags = ("--scheme", "static_wi8_ai8", "--calibration-samples", "20", "--output", "cli")
    shrink("quantize", "toy.keras", "--data", "toy.npz", *flags, cwd=folder, store=store)
    keys = {"scheme": "static_wi8_ai8", "calibration_samples": 20}
    same = call("quantize_file", folder, store, **keys, output="api")
    fresh = call("quantize_file", folder, folder / "another", **keys, output="fresh")
    report = json.loads((folder / "cli" / "report.json").read_text(encoding="utf-8"))
    assert same["statuses"] == ["cached", "cached"]
    assert fresh["statuses"] == ["done", "done"]
    assert same["recipe"] == report["recipe"]["sha256"]
    assert same["metrics"] == report["stages"][-1]["metrics"]
    artifact = report["stages"][-1]["artifact"]
    assert same["artifact"] == f"api/{artifact}"
    digests = [sha256(folder / place / artifact) for place in ("cli", "api", "fresh")]
    assert digests == [report["stages"][-1]["sha256"]] * 3
    one = call("quantize_file", folder, store, scheme="float16", output="one.tflite")
    assert one["artifact"] == str(folder / "one.tflite")
    assert (folder / "one.tflite").is_file()


def test_models_and_arrays_in_memory_are_known_again(folder: Path) -> None:
    pruned, quantized, again, shown = toy("chain", folder)
    assert pruned["statuses"] == ["done", "done"]
    assert again["statuses"] == ["cached", "cached"]
    assert again["artifact"] == "again/artifacts/01-prune.keras"
    assert pruned["folder"] == "runs/prune-toy"
    assert quantized["artifact"] == "q/artifacts/01-quantize.tflite"
    assert quantized["figures"]["accuracy"] == quantized["metrics"]["accuracy"]
    assert quantized["figures"]["tflite_bytes"] == (folder / quantized["artifact"]).stat().st_size
    assert shown["stdout"] == ""
    assert "[2/2] prune: done in" in shown["stderr"]
    assert "warning: " in shown["stderr"]
    assert quantized["artifact"] in shown["text"]
    assert shown["repr"].startswith("<Run 'quantize-prune-toy' finished: ")
    assert '<th scope="row" style="text-align: left">quantize</th>' in shown["html"]
    kept = sorted(path.name for path in Path(shown["cache"], "inputs").glob("*/*"))
    assert kept == ["data.npz", "toy.keras"]


@pytest.mark.slow
def test_keras_3_and_data_sets_are_taken(tmp_path: Path) -> None:
    run, other = call("real", tmp_path, tmp_path / "store")
    assert run["artifact"] == "runs/distill-toy/artifacts/01-distill.keras"
    assert run["figures"]["parameters"] == 4 * 4 + 4 + 4 * 3 + 3
    # Batches of a data set and whole arrays are the same data: the baseline is measured once.
    assert other["statuses"] == ["cached", "done"]


@pytest.mark.slow
def test_runs_are_compared(folder: Path) -> None:
    side = toy("compared", folder)
    assert side["rows"] == ["baseline", "quantize"]
    assert side["runs"] == ["page/../runs/evaluate-toy", "page/../runs/quantize-toy"]
    assert side["loaded"] == "evaluate-toy"
    assert "quantize" in side["text"]
    assert side["repr"] == "<Comparison of 2 runs: 2 rows in page>"
    assert "compare.html" in side["html"]


@pytest.mark.slow
def test_recipes_run_and_are_swept_from_memory(folder: Path) -> None:
    run, settings, folders, code = toy("recipes", folder)
    assert (run["passed"], run["exit_code"]) == (False, 1)
    assert run["artifact"] == "runs/memory/artifacts/01-prune.keras"
    assert settings == [{"prune.sparsity": "0.7"}, {"prune.sparsity": "0.8"}]
    assert folders == ["runs/memory/prune.sparsity=0.7", "runs/memory/prune.sparsity=0.8"]
    assert code == 1


MISTAKES = [
    ("RecipeError", 2, "shrink.prune: unknown key 'sparsty'\n  hint: did you mean sparsity?"),
    ("RecipeError", 2, "sparsity"),
    ("RecipeError", 2, "unknown key 'epochs'"),
    ("RecipeError", 2, "data: no data was named"),
    ("ModelError", 3, "nowhere.keras"),
    ("ModelError", 3, "'file.py:function'"),
    ("ModelError", 3, "a int is not a model"),
    ("DataError", 3, "x has 60 examples and y has 50"),
    ("DataError", 3, "trian"),
    ("RecipeError", 2, "did you mean digits?"),
    ("RecipeError", 2, "call shrink.run"),
    ("InputError", 3, "there is no report here"),
    ("RecipeError", 2, "output: a int is not a path"),
    ("RecipeError", 2, "unknown key 'optimizer_lr'"),
    ("StageError", 4, "prune"),
]


def test_mistakes_are_typed_errors_that_speak_of_keywords(folder: Path) -> None:
    told = toy("failures", folder)
    assert len(told) == len(MISTAKES)
    for (name, code, text, kept), expected in zip(told, MISTAKES, strict=True):
        assert (name, code) == expected[:2], text
        assert expected[2] in text
        assert "--" not in text.replace("`shrink prune --help`", "")
        assert (kept is not None) == (name == "StageError")


def test_ctrl_c_ends_the_call_and_gives_the_signal_back(folder: Path) -> None:
    told = toy("interrupted", folder)
    assert told == ["interrupted; the same call continues", "Interrupted", "True"]


@pytest.mark.slow
def test_a_script_needs_no_main_guard(folder: Path) -> None:
    import os
    import subprocess
    import sys

    code = (
        "import shrink; run = shrink.quantize('toy.keras', data='toy.npz', scheme='float16');"
        "print(run.artifact)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "SHRINK_CACHE_DIR": str(folder / "store")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "runs/quantize-toy/artifacts/01-quantize.tflite\n"
    assert "[2/2] quantize: done in" in done.stderr
