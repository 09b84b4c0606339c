"""`shrink compact` on the command line: what it writes and says, and its exit codes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from shrink.base.files import sha256
from shrink.tflite.interpreter import load
from tests.cli.shell import shrink
from tests.compact.test_compact import wide
from tests.compact.toys import Net
from tests.forks import ARENA

SMALL = ("--output", "small.tflite")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(wide())
    return path


def run(
    *words: str | Path, model: Path, expect: int = 0, measured: Collection[str] = ()
) -> subprocess.CompletedProcess[str]:
    store = model.parent / "store"
    return shrink(*words, cwd=model.parent, store=store, expect=expect, measured=measured)


def test_compact_writes_a_file_and_says_what_became_of_it(model: Path) -> None:
    command = ("compact", "model.tflite", *SMALL)
    done = run(*command, "--json", model=model)
    found = json.loads(done.stdout)
    assert found["changed"]
    assert found["arena_after"] < 0.5 * found["arena_before"]
    assert found["new_operators"] == ["CONCATENATION", "SLICE"]
    written = model.parent / "small.tflite"
    assert found["path"] == str(written)
    assert found["file_bytes"] == len(written.read_bytes())
    again = run(*command, model=model, expect=2)
    assert "the file exists" in again.stderr


def test_compact_leaves_a_file_that_is_no_record(model: Path) -> None:
    entry = {"file": model.name, "sha256": sha256(model), "recipe": "own"}
    record = {"artifacts": [entry]}
    model.with_name("model.tflite.json").write_text(json.dumps(record), encoding="utf-8")
    mine = model.parent / "small.tflite.json"
    mine.write_text("mine", encoding="utf-8")
    refused = run("compact", "model.tflite", *SMALL, model=model, expect=2)
    assert "small.tflite.json: the file exists" in refused.stderr
    assert "--force" in refused.stderr
    assert mine.read_text(encoding="utf-8") == "mine"
    assert not (model.parent / "small.tflite").exists()
    # What cannot be written beside the file takes nothing from the file.
    mine.unlink()
    mine.mkdir()
    done = run("compact", "model.tflite", *SMALL, "--force", model=model)
    assert "is written, but not its record beside it" in done.stderr
    assert (model.parent / "small.tflite").is_file()


def test_compact_leaves_a_run_folder_as_other_verbs_do(model: Path) -> None:
    net = Net((1, 2, 2, 4))
    model.write_bytes(net.file(net.conv(net.input, 4, (1, 1))))
    run("compact", "model.tflite", model=model, measured=[ARENA])
    folder = model.parent / "runs" / "compact-model"
    before, after = json.loads((folder / "report.json").read_text())["stages"]
    assert after["details"]["compact"]["changed"] is False
    assert after["memory"]["arena_bytes"] == before["memory"]["arena_bytes"] > 0
    assert (folder / after["artifact"]).read_bytes() == model.read_bytes()
    assert "unchanged" in after["notes"][0]
    assert (folder / "report.html").is_file()


@pytest.mark.slow
def test_compact_measures_the_artifact_on_examples(model: Path) -> None:
    rng = np.random.default_rng(0)
    given = rng.normal(0, 20, (12, 48, 24, 4)).astype(np.float32)
    targets = load(model).predict(given)[0]
    np.savez(model.parent / "data.npz", x=given, y=targets)
    data = ("--data", "data.npz", "--task-loss", "mean_squared_error", "--test-split", "0.5")
    run("compact", "model.tflite", *data, "--output", "out.bin", model=model, measured=[ARENA])
    report = json.loads((model.parent / "out.bin" / "report.json").read_text())
    before, after = report["stages"]
    assert after["kind"] == "compact"
    arenas = [stage["memory"]["arena_bytes"] for stage in (before, after)]
    assert arenas[1] < 0.5 * arenas[0]
    compaction = after["details"]["compact"]
    assert arenas == [compaction["arena_before"], compaction["arena_after"]]
    # The targets were stored as float32.
    losses = [stage["metrics"]["loss"] for stage in (before, after)]
    assert losses == pytest.approx([0, 0], abs=1e-9)
    assert losses[0] == losses[1]
    artifact = model.parent / "out.bin" / after["artifact"]
    assert load(artifact).predict(given)[0].tobytes() == targets.tobytes()
    assert "Memory by operator" in (model.parent / "out.bin" / "report.html").read_text()


def test_compact_refuses_flags_that_contradict(model: Path) -> None:
    both = ("--arena-bytes", "9KB", "--max-extra-macs", "0.1")
    for output in ((), SMALL):
        done = run("compact", model, *both, *output, model=model, expect=2)
        assert "give one of the two" in done.stderr
        none = run("compact", model, "--max-extra-macs", "nan", *output, model=model, expect=2)
        assert "max_extra_macs" in none.stderr


BUILDER = """
import tf_keras as keras

def build():
    layers = keras.layers
    x = inputs = layers.Input((8, 8, 1))
    x = layers.UpSampling2D(4)(x)
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(32, 1, activation="relu")(x)
    x = layers.DepthwiseConv2D(3, padding="same", activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 1)(x))
    return keras.Model(inputs, layers.Dense(10)(x))
"""
RECIPE = """
name: wide
model: wide.py:build
data: {source: digits}
stages:
  - train: {epochs: 1}
  - quantize: {scheme: static_wi8_ai8, target: tflm}
  - compact: {}
"""


@pytest.mark.slow
def test_a_recipe_compacts_what_it_quantized_and_says_what_firmware_needs(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text(BUILDER)
    (tmp_path / "wide.yaml").write_text(RECIPE)
    model = tmp_path / "wide.py"
    run("run", "wide.yaml", "--output", "out", model=model, measured=[ARENA])
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    quantize, compact = found["stages"][1:]
    arena = compact["memory"]["arena_bytes"]
    assert arena < 0.8 * quantize["memory"]["arena_bytes"]
    assert compact["metrics"] == quantize["metrics"]
    assert compact["details"]["compact"]["arena_after"] == arena
    metadata = json.loads((tmp_path / "out" / "artifacts" / "metadata.json").read_text())
    (told,) = (one for one in metadata["artifacts"] if one["file"] == "02-compact.tflite")
    assert told["arena_bytes"] == arena
    assert {"CONCATENATION", "SLICE"} <= set(told["operators"])
    assert len(told["labels"]) == 10
    assert "Memory by operator" in (tmp_path / "out" / "report.html").read_text()
    run("export", "out", "--format", "cc-array", "--output", tmp_path / "cc", model=model)
    header = (tmp_path / "cc" / "wide_model_data.h").read_text()
    assert f"#define WIDE_ARENA_BYTES {arena}\n" in header
    assert "resolver.AddSlice();" in header
    assert "resolver.AddConcatenation();" in header
    assert f"#define WIDE_OPERATORS {len(told['operators'])}\n" in header
