"""The child processes that try a file load no TensorFlow: it would be most of their time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shrink.measure.inference import measure_inference
from shrink.tflite.arena import arena_of, predict_in_micro
from shrink.tflite.runtime import guard_artifact
from shrink.tflite.suitability import check_runs
from tests import runtimes
from tests.tflite.toys import small_cnn, to_float32

HEAVY = (
    *("tensorflow", "tf_keras", "keras", "ai_edge_quantizer", "sklearn", "scipy"),
    "shrink.base.metrics",
)
# Read by every interpreter that starts: notes that it did, and each heavy module it looks for.
_NOTING = f"""
import os, sys

def note(what):
    with open(os.environ["NOTED"], "a") as stream:
        stream.write(what + " ")

class Noting:
    def find_spec(self, name, path=None, target=None):
        if name in {HEAVY!r}:
            note(name)

note("started")
sys.meta_path.insert(0, Noting())
"""
X = np.ones((2, 8, 8, 1), np.float32)


@pytest.mark.parametrize(
    "tried",
    [
        lambda path: check_runs(path.read_bytes(), path),
        guard_artifact,
        arena_of,
        lambda path: predict_in_micro(path.read_bytes(), X),
        measure_inference,
    ],
    ids=["runs", "guard", "arena", "micro", "inference"],
)
def test_a_child_loads_nothing_heavy(
    tried: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtimes, "server", lambda: None)  # a process of its own for each
    path, noted = tmp_path / "model.tflite", tmp_path / "noted"
    path.write_bytes(to_float32(small_cnn()))
    (tmp_path / "sitecustomize.py").write_text(_NOTING)
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{before}".rstrip(os.pathsep))
    monkeypatch.setenv("NOTED", str(noted))
    tried(path)
    assert set(noted.read_text().split()) == {"started"}
