"""A recipe of three stages on a tiny model, and what its runs must leave behind."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras
from ai_edge_litert.interpreter import Interpreter

from shrink.base.files import TEMPORARY_PREFIX
from shrink.data.config import DataConfig
from shrink.data.opening import open_dataset
from shrink.report.run_files import RENDERED
from shrink.run.store import Store
from tests import forks
from tests.cli.shell import command, environment, read_report

STAGES = ("train", "prune", "quantize")
RUN_FILES = {
    "report.json", "plan.json", "recipe.resolved.yaml", *RENDERED,
    "artifacts/00-train.keras", "artifacts/01-prune.keras", "artifacts/02-quantize.tflite",
}  # fmt: skip
LOGS = {"logs/00-train.log", "logs/01-prune.log", "logs/02-quantize.log"}
_MODEL = """
import tf_keras as keras
def build():
    inputs = keras.layers.Input((8, 8, 1))
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.Flatten()(inputs)))
"""
_RECIPE = """
name: tiny
model: tiny.py:build
data: {source: digits}
stages:
  - train: {epochs: 1}
  - prune: {method: magnitude, sparsity: 0.5, epochs: 0}
  - quantize: {scheme: static_wi8_ai8}
"""


@dataclass(frozen=True)
class TinyRun:
    """Where the recipe is run: the recipe, a store and a run folder."""

    root: Path
    output: str = "out"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def folder(self) -> Path:
        return self.root / self.output

    @property
    def report(self) -> dict[str, Any]:
        return read_report(self.folder)

    def statuses(self) -> dict[str, str]:
        return {stage["name"]: stage["status"] for stage in self.report["stages"]}

    @property
    def words(self) -> list[str]:
        """The command line of its run."""
        recipe = self.root / "recipe.yaml"
        return ["run", str(recipe), "--output", str(self.folder), "--quiet"]

    def start(self) -> subprocess.Popen[str]:
        """Start a run."""
        return subprocess.Popen(
            command(*self.words),
            cwd=self.root,
            env=environment(self.store),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def copy_without(self, stage: str | None, root: Path) -> TinyRun:
        """Copy recipe, store and run folder; of the stage the store then has no manifest."""
        shutil.copytree(self.root, root, ignore=shutil.ignore_patterns("other-*"))
        copied = TinyRun(root, self.output)
        if stage is not None:
            digest = next(s["sha256"] for s in self.report["stages"] if s["name"] == stage)
            for manifest in (copied.store / "steps").iterdir():
                text = (manifest / "manifest.json").read_text("utf-8")
                if json.loads(text)["files"]["artifact"]["sha256"] == digest:
                    shutil.rmtree(manifest)
        return copied


def write_recipe(root: Path) -> None:
    """Write the model and the recipe."""
    (root / "tiny.py").write_text(_MODEL, encoding="utf-8")
    (root / "recipe.yaml").write_text(_RECIPE, encoding="utf-8")


def run_together(*runs: TinyRun) -> list[int]:
    """Run several runs of one store at the same time, to their end; return the exit codes."""
    root, words = runs[0].root, [run.words for run in runs]
    ended = forks.run_together(words, root, environment(runs[0].store))
    assert not any("Traceback" in done.stderr for done in ended), ended
    return [done.returncode for done in ended]


def finish(process: subprocess.Popen[str]) -> int:
    """Wait for a run; return its exit code."""
    _, errors = process.communicate()
    assert "Traceback" not in errors, errors
    return process.returncode


def wait_until_nobody_uses(store: Path) -> None:
    """Fail unless every process that was started for this store ends, in the kernel's own time."""
    deadline = time.monotonic() + 30
    while (alive := processes_of(store)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive == []


def processes_of(store: Path) -> list[str]:
    """Return the command lines of all processes, grandchildren too, with this store."""
    wanted = f"SHRINK_CACHE_DIR={store}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                settings = (entry / "environ").read_bytes().split(b"\0")
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if wanted in settings and line:
                found.append(line.decode())
    return found


def check_no_report_of_other_artifacts(run: TinyRun) -> None:
    """If there is a report, its artifacts are there and are the ones that it speaks of."""
    if (run.folder / "report.json").exists():
        for stage in run.report["stages"]:
            if stage["artifact"] is not None:
                assert hash_of(run.folder / stage["artifact"]) == stage["sha256"]


def check_whole(run: TinyRun) -> None:
    """Run folder and store hold what a run leaves, and nothing else."""
    assert run.report["passed"] is True
    names = {str(p.relative_to(run.folder)) for p in run.folder.rglob("*") if p.is_file()}
    (splits,) = (name for name in names if name.startswith("splits/"))
    assert names == {*RUN_FILES, *LOGS, splits}
    for name in LOGS:
        assert (run.folder / name).read_text(encoding="utf-8").startswith("--- ")
    assert hash_of(run.folder / splits) == Path(splits).stem
    check_no_report_of_other_artifacts(run)
    check_store(run.store)


def check_store(store: Path) -> None:
    """Every file is what its name says, every manifest is whole, nothing temporary is left."""
    assert not list(store.rglob(f"{TEMPORARY_PREFIX}*"))
    assert list((store / "work").iterdir()) == []
    kept = [p for p in (store / "steps").rglob("*") if p.is_file() and p.suffix != ".json"]
    assert kept
    assert all(hash_of(path) == path.stem for path in kept)
    warnings: list[str] = []
    opened = Store(store, warnings.append)
    manifests = list((store / "steps").iterdir())
    found = [opened.find(manifest.name) for manifest in manifests]
    # A step may stand under several keys: its own, the resolved recipe's, and its measurement's.
    assert len({step.files["artifact"].stem for step in found if step is not None}) == len(STAGES)
    assert None not in found
    assert warnings == []


def check_same_artifacts(run: TinyRun, reference: TinyRun) -> None:
    """The weights are bitwise equal; TFLite files give equal outputs on the test split."""
    for stage, wanted in zip(run.report["stages"], reference.report["stages"], strict=True):
        if stage["sha256"] == wanted["sha256"]:
            continue
        paths = (run.folder / stage["artifact"], reference.folder / wanted["artifact"])
        given, expected = map(contents_of, paths)
        for one, other in zip(given, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def contents_of(artifact: Path) -> list[Any]:
    """Return a Keras file's weights, or a TFLite file's outputs on the test split."""
    if artifact.suffix == ".keras":
        return keras.models.load_model(artifact, compile=False).get_weights()
    test = open_dataset(DataConfig(source="digits"), seed=0).test
    x, _ = test.arrays(np.arange(len(test)))
    interpreter = Interpreter(model_path=str(artifact))
    given, wanted = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    interpreter.resize_tensor_input(given["index"], x.shape)
    interpreter.allocate_tensors()
    scale, zero_point = given["quantization"]
    interpreter.set_tensor(given["index"], np.round(x / scale + zero_point).astype(given["dtype"]))
    interpreter.invoke()
    return [interpreter.get_tensor(wanted["index"])]


def hash_of(path: Path) -> str:
    """Return a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
