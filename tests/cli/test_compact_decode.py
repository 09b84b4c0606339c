"""A recipe that prunes, clusters, quantizes, and stores kernels for TFLM_DECODE, with gates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tflite_micro import runtime

from shrink.tflite.model import read
from tests.cli.shell import read_report, shrink
from tests.compact.runs import allocates
from tests.forks import ARENA

BUILDER = """
import tf_keras as keras

def build():
    layers = keras.layers
    inputs = layers.Input((8, 8, 1))
    x = layers.Dense(128, activation="relu")(layers.Flatten()(inputs))
    x = layers.Dense(96, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(10)(x))
"""
RECIPE = """
name: stored
model: dense.py:build
data: {source: digits, test_split: 0.1}
stages:
  - train: {epochs: 2}
  - prune: {sparsity: 0.5, epochs: 0}
  - cluster: {clusters: 4, epochs: 0}
  - quantize: {target: tflm, calibration_samples: 50}
  - compact: {decode: auto, arena_bytes: 40KB}
gates:
  tflite_bytes: {limit: 1KB, level: warn}
  accuracy_drop: 0.9
  arena_bytes: 40KB
"""


def in_micro(content: bytes) -> list[bytes]:
    """Return what TFLite Micro's wheel gives for ten random inputs."""
    rng, found = np.random.default_rng(1), []
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=100_000)
    for _ in range(10):
        given = rng.integers(-128, 128, (1, 8, 8, 1)).astype(np.int8)
        interpreter.set_input(given, 0)
        interpreter.invoke()
        found.append(np.array(interpreter.get_output(0)).tobytes())
    return found


@pytest.mark.slow  # tests/compact/test_decode.py does it in process
def test_a_recipe_stores_kernels_and_its_gates_judge_the_stored_file(tmp_path: Path) -> None:
    (tmp_path / "dense.py").write_text(BUILDER)
    (tmp_path / "stored.yaml").write_text(RECIPE)
    words = ("run", "stored.yaml", "--output", "out")
    shrink(*words, cwd=tmp_path, store=tmp_path / "store", measured=[ARENA])
    report = read_report(tmp_path / "out")
    train, *_, quantize, compact = report["stages"]
    dense, stored = (
        (tmp_path / "out" / one["artifact"]).read_bytes() for one in (quantize, compact)
    )
    assert len(stored) < 0.6 * len(dense)
    assert "TFLM_DECODE" in {operator.name for operator in read(stored)[0].operators}
    assert in_micro(stored) == in_micro(dense)
    assert len(set(in_micro(dense))) > 1

    arena = compact["memory"]["arena_bytes"]
    assert arena <= 40_000
    assert allocates(stored, arena)
    assert not allocates(stored, arena - 16)
    assert compact["metrics"] == quantize["metrics"]
    assert compact["latency"]["p50_ms"] is None
    assert any("LiteRT does not know TFLM_DECODE" in note for note in compact["notes"])

    gates = {gate["name"]: gate for gate in report["gates"]}
    drop = train["metrics"]["accuracy"] - compact["metrics"]["accuracy"]
    assert gates["tflite_bytes"]["value"] == compact["size"]["tflite_bytes"] == len(stored)
    assert gates["arena_bytes"]["value"] == arena
    assert gates["accuracy_drop"]["value"] == pytest.approx(drop)
    assert {name: gate["passed"] for name, gate in gates.items()} == {
        "tflite_bytes": False, "accuracy_drop": True, "arena_bytes": True,
    }  # fmt: skip
    assert report["passed"] is True

    told = json.loads((tmp_path / "out" / "artifacts" / "metadata.json").read_text())
    (entry,) = [a for a in told["artifacts"] if a["sha256"] == compact["sha256"]]
    assert entry["arena_bytes"] == arena
    assert "TFLM_DECODE" in entry["operators"]
