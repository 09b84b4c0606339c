"""`shrink compact` on the command line: what it writes and says, and its exit codes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from shrink.tflite.edit import packed, unpacked
from tests.cli.shell import shrink
from tests.compact.test_compact import wide
from tests.compact.toys import chain


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(wide())
    return path


def run(*words: str | Path, model: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    return shrink(*words, cwd=model.parent, store=model.parent / "store", expect=expect)


def test_compact_writes_a_file_and_says_what_became_of_it(model: Path) -> None:
    done = run("compact", "model.tflite", "--json", model=model)
    found = json.loads(done.stdout)
    assert found["changed"]
    assert found["arena_after"] < 0.5 * found["arena_before"]
    assert found["new_operators"] == ["CONCATENATION", "SLICE"]
    written = model.parent / "model-compact.tflite"
    assert found["path"] == str(written)
    assert found["file_bytes"] == len(written.read_bytes())
    again = run("compact", "model.tflite", model=model, expect=2)
    assert "it is there already" in again.stderr


def test_compact_refuses_flags_that_contradict(model: Path) -> None:
    both = ("--arena-bytes", "9KB", "--max-extra-macs", "0.1")
    assert "give one of the two" in run("compact", model, *both, model=model, expect=2).stderr
    other = run("compact", model, "--output", "small.bin", model=model, expect=2)
    assert "ends in .tflite" in other.stderr
    none = run("compact", model, "--max-extra-macs", "nan", model=model, expect=2)
    assert "--max-extra-macs: it is a number" in none.stderr


def test_compact_leaves_a_folder_where_it_is(model: Path) -> None:
    folder = model.parent / "folder.tflite"
    folder.mkdir()
    (folder / "notes").write_text("kept")
    done = run("compact", model, "--output", folder, "--force", model=model, expect=2)
    assert "is a folder" in done.stderr
    assert (folder / "notes").read_text() == "kept"


def test_compact_names_what_it_cannot_rewrite(model: Path) -> None:
    several = unpacked(chain())
    several.subgraphs = several.subgraphs * 2
    model.write_bytes(packed(several))
    assert "2 subgraphs" in run("compact", model, model=model, expect=3).stderr


def test_compact_says_what_arena_is_possible(model: Path) -> None:
    model.write_bytes(chain())
    done = run("compact", model, "--arena-bytes", "1KB", model=model, expect=4)
    assert "the smallest takes" in done.stderr
    assert not (model.parent / "model-compact.tflite").exists()


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
    run("run", "wide.yaml", "--output", "out", model=model)
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    quantize, compact = found["stages"][1:]
    arena = compact["memory"]["arena_bytes"]
    assert arena < 0.8 * quantize["memory"]["arena_bytes"]
    assert compact["metrics"] == quantize["metrics"]
    assert compact["details"]["compact"]["arena_after"] == arena
    metadata = json.loads((tmp_path / "out" / "artifacts" / "metadata.json").read_text())
    told = metadata["artifacts"][-1]
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
