"""Commands on .tflite files and saved reports, where TensorFlow and its relatives are missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compact.toys import chain

ROOT = Path(__file__).parents[2]
MISSING = (
    *("tensorflow", "tf_keras", "keras", "tensorflow_model_optimization", "ai_edge_quantizer"),
    *("scipy", "sklearn", "h5py", "PIL", "optuna"),
)
BLOCKER = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MISSING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
"""As `sitecustomize`, every Python that starts runs it: commands and their workers."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("without")
    (folder / "sitecustomize.py").write_text(BLOCKER)
    (folder / "model.tflite").write_bytes(chain(64))
    for name in ("a", "b"):
        (folder / name).mkdir()
        shutil.copyfile(ROOT / "tests/report/saved/chain.json", folder / name / "report.json")
    return folder


def shrink(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "SHRINK_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "shrink", *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "model.tflite"],
        ["compact", "model.tflite", "--output", "small.tflite"],
        ["bench", "model.tflite"],
        ["export", "model.tflite", "--format", "cc-array", "--output", "firmware"],
        ["diff", "a", "b"],
        ["compare", "a", "b", "--output", "compared"],
        ["report", "a"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_on_files_needs_no_tensorflow(folder: Path, words: list[str]) -> None:
    done = shrink(folder, *words)
    assert done.returncode == 0, done.stderr


def test_the_demo_shrinks_the_arena_and_keeps_what_is_there(folder: Path) -> None:
    done = shrink(folder, "compact", "--demo", "--json")
    found = json.loads(done.stdout)
    assert found["arena_after"] < 0.8 * found["arena_before"]
    assert (folder / "demo.tflite").is_file()
    assert (folder / "demo-compact.tflite").is_file()
    (folder / "demo.tflite").write_bytes(b"my own file")
    refused = shrink(folder, "compact", "--demo", "--output", "other.tflite")
    assert refused.returncode == 2
    assert (folder / "demo.tflite").read_bytes() == b"my own file"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "digits", "--output", "out"],
        ["evaluate", "model.tflite", "--data", "digits"],
        ["data", "check", "digits"],
    ],
    ids=lambda words: words[0],
)
def test_other_commands_name_the_missing_package(folder: Path, words: list[str]) -> None:
    done = shrink(folder, *words)
    assert done.returncode == 5, done.stderr
    assert "needs the package " in done.stderr
    assert "python -m pip install" in done.stderr
