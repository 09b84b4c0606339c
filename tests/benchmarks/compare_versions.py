"""An older checkout and this one, side by side: what differs between their results.

    git worktree add ../old REVISION
    python -m tests.benchmarks.compare_versions ../old [--only GROUP...] [--models FOLDER] [--full]

Groups: `recipes` runs bundled recipes (with `--full` as they are, else with one epoch a stage),
`saved` renders saved reports, `files` gives .tflite files to the commands that take them (those
that the recipes made, and every .tflite file of `--models`), `mistakes` makes wrong inputs.
Both versions run with the Python that runs this script, one after the other, each with a cache of
its own. It compares outputs of artifacts on fixed inputs, figures, splits, class names, exit codes,
places of errors, and whether there is a hint. It compares no wording, no times, no bytes of files.
A line for each case; exit 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import reprlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tests.benchmarks.harness import say

HERE = Path(__file__).parents[2]
RECIPES = (
    *("digits", "digits-channels", "digits-distill-half-width", "digits-prune-cluster"),
    *("digits-prune-magnitude-80", "digits-quantize-every-scheme", "digits-quantize-mixed"),
    *("digits-detect", "digits-segment", "machine-anomaly", "series-forecast", "text-intent"),
    "tones-keyword",
)
FIGURES = {
    "tflite_bytes": 0.002,  # the converter's files differ by a few bytes from run to run
    "parameters": 0.0,
    "nonzero_parameters": 0.0,
    "macs": 0.0,
    "arena_bytes": 0.0,
    "training_peak_bytes": 0.1,  # small tensors are sampled
}
"""Figures that are compared, with the relative difference that is the machine's."""
TOLERANCE = 1e-5
"""Of outputs and metrics, relative to their largest value."""


class Version:
    """A checkout with a cache and a working folder of its own."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.checkout, self.folder = checkout, folder
        folder.mkdir(parents=True)

    def shrink(self, *words: str, timeout: float = 1800) -> dict[str, Any]:
        """Run a command with `--json`; return its exit code and its document."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.checkout),
            "SHRINK_CACHE_DIR": str(self.folder / "cache"),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        done = subprocess.run(
            [sys.executable, "-m", "shrink", *words, "--json"],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip
        try:
            document = json.loads(done.stdout)
        except ValueError:
            document = {"no JSON": done.stdout[-200:]}
        return {"code": done.returncode, "document": document}


def error_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return exit code, kind, place and whether there is a hint; paths lose their folders."""
    error = result["document"].get("error") or {}
    position = error.get("position") or {}
    return {
        "exit code": result["code"],
        "type": error.get("type"),
        "line": position.get("line"),
        "column": position.get("column"),
        "hint": bool(error.get("hint")),
    }


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Yield what differs between two plain values; floats may differ by `TOLERANCE`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from differences(old.get(key), new.get(key), f"{place}.{key}".lstrip("."))
    elif isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        if old.shape != new.shape or old.dtype != new.dtype:
            yield f"{place}: {old.dtype}{old.shape} -> {new.dtype}{new.shape}"
        elif old.size:
            largest = max(float(np.abs(old.astype(np.float64)).max()), 1e-12)
            off = float(np.abs(old.astype(np.float64) - new.astype(np.float64)).max())
            if not off <= TOLERANCE * largest:
                yield f"{place}: differs by {off / largest:.1e} of its largest value"
    elif isinstance(old, float) and isinstance(new, float):
        allowed = FIGURES.get(place.rpartition(".")[2], TOLERANCE)
        if abs(old - new) > allowed * max(abs(old), abs(new), 1e-12):
            yield f"{place}: {old:g} -> {new:g}"
    elif old != new:
        yield f"{place}: {reprlib.repr(old)} -> {reprlib.repr(new)}"


def outputs(path: Path) -> dict[str, Any]:
    """Return what an artifact gives for fixed inputs; of a Keras file, its weights."""
    if path.suffix == ".keras":
        with tempfile.TemporaryDirectory() as folder:
            shutil.unpack_archive(path, folder, "zip")
            weights: dict[str, Any] = {}
            with h5py.File(Path(folder) / "model.weights.h5") as file:
                file.visititems(
                    lambda name, item: (
                        weights.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
                    )
                )
        return {name: value for name, value in weights.items() if value.dtype.kind in "fiu"}
    interpreter = Interpreter(str(path), num_threads=1)
    interpreter.allocate_tensors()
    generator = np.random.default_rng(0)
    for detail in interpreter.get_input_details():
        value = generator.uniform(0, 1, detail["shape"]) * (
            1.0 if detail["dtype"] is np.float32 else 50
        )
        interpreter.set_tensor(detail["index"], value.astype(detail["dtype"]))
    interpreter.invoke()
    return {
        detail["name"]: interpreter.get_tensor(detail["index"])
        for detail in interpreter.get_output_details()
    }


def run_facts(folder: Path) -> dict[str, Any]:
    """Return all of a run folder that two versions must agree on."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    facts: dict[str, Any] = {
        "passed": report["passed"],
        "gates": {gate["name"]: gate["passed"] for gate in report["gates"]},
        "examples": report.get("data", {}).get("examples"),
        "classes": report.get("data", {}).get("classes"),
    }
    for stage in report["stages"]:
        figures = {**(stage["size"] or {}), **(stage["memory"] or {})}
        facts[stage["name"]] = {
            "status": stage["status"],
            "examples": stage["examples"],
            "metrics": {
                name: float(v) for name, v in (stage["metrics"] or {}).items() if v is not None
            },
            **{n: None if figures.get(n) is None else float(figures[n]) for n in FIGURES},
        }
        if stage["artifact"]:
            facts[stage["name"]]["outputs"] = outputs(folder / stage["artifact"])
    metadata = folder / "artifacts" / "metadata.json"
    if metadata.is_file():
        artifacts = json.loads(metadata.read_text(encoding="utf-8"))["artifacts"]
        facts["labels"] = [artifact.get("labels") for artifact in artifacts]
    return facts


def recipe_command(checkout: Path, name: str, full: bool) -> list[str]:
    """Return the command of a version's own bundled recipe."""
    path = checkout / "recipes" / f"{name}.yaml"
    return ["run", str(path), *([] if full else epochs_of(path.read_text(encoding="utf-8")))]


def epochs_of(recipe: str) -> list[str]:
    """Return overrides that give every stage with epochs above 1 one epoch."""
    import yaml

    words, seen = [], dict[str, int]()
    for stage in yaml.safe_load(recipe)["stages"]:
        ((kind, settings),) = stage.items()
        seen[kind] = seen.get(kind, 0) + 1
        name = (settings or {}).get("name", kind if seen[kind] == 1 else f"{kind}-{seen[kind]}")
        if (settings or {}).get("epochs", 0) > 1:
            words += ["--set", f"{name}.epochs=1"]
    return words


MISTAKES: dict[str, tuple[str, list[str]]] = {
    "no such recipe": ("", ["run", "missing.yaml"]),
    "unknown stage": ("stages: [trian: {epochs: 1}]", ["run", "r.yaml"]),
    "unknown key": ("stages: [train: {epoch: 1}]", ["run", "r.yaml"]),
    "duplicate key": ("stages: [train: {epochs: 1, epochs: 2}]", ["run", "r.yaml"]),
    "wrong unit": ("stages: [train: {epochs: 1}]\ngates: {tflite_bytes: 4kg}", ["run", "r.yaml"]),
    "NaN": ("training: {seed: .nan}\nstages: [train: {epochs: 1}]", ["run", "r.yaml"]),
    "illegal order": ("stages: [train: {}, quantize: {}, prune: {}]", ["validate", "r.yaml"]),
    "unknown metric": (
        "task: {metrics: [acuracy]}\nstages: [train: {epochs: 1}]", ["run", "r.yaml"],
    ),
    "unknown gate": ("stages: [train: {}]\ngates: {speed: 1}", ["validate", "r.yaml"]),
    "no model": ("model: no.keras\nstages: [train: {epochs: 1}]", ["run", "r.yaml"]),
    "no YAML": ("stages: [", ["run", "r.yaml"]),
    "wrong flag": ("", ["quantize", "m.keras", "--data", "digits", "--schem", "x"]),
    "wrong scheme": ("", ["quantize", "m.keras", "--data", "digits", "--scheme", "int3"]),
    "corrupt tflite": ("", ["inspect", "corrupt.tflite"]),
    "corrupt keras": ("", ["evaluate", "corrupt.keras", "--data", "digits"]),
    "no data": ("", ["data", "check", "nowhere"]),
    "no run folder": ("", ["report", "nowhere"]),
    "compact of Keras": ("", ["compact", "corrupt.keras"]),
    "unknown command": ("", ["prun"]),
}  # fmt: skip
"""Texts of r.yaml and the words of the command."""


def mistake(version: Version, text: str, words: list[str]) -> dict[str, Any]:
    """Return the error that a wrong input gives."""
    model = "" if text.startswith("model:") else "model: net.py:build\n"
    (version.folder / "r.yaml").write_text(f"{model}data: {{source: digits}}\n{text}\n")
    (version.folder / "net.py").write_text("def build():\n    return None\n")
    for name in ("corrupt.tflite", "corrupt.keras", "m.keras"):
        (version.folder / name).write_bytes(b"\x1c\x00\x00\x00TFL3" + bytes(range(200)))
    return error_of(version.shrink(*words))


def file_facts(version: Version, path: Path) -> dict[str, Any]:
    """Return what the commands on .tflite files do with one."""
    output = version.folder / "compacted.tflite"
    output.unlink(missing_ok=True)
    seen = version.shrink("inspect", str(path))
    made = version.shrink("compact", str(path), "--output", str(output))
    facts: dict[str, Any] = {"inspect": error_of(seen), "compact": error_of(made)}
    if seen["code"] == 0:
        arena = seen["document"].get("arena_bytes")
        facts["arena_bytes"] = None if arena is None else float(arena)
    if output.is_file():
        facts["compacted"] = outputs(output)
        arena = version.shrink("inspect", str(output))["document"].get("arena_bytes")
        facts["compacted arena_bytes"] = None if arena is None else float(arena)
    return facts


def saved_facts(version: Version, path: Path) -> dict[str, Any]:
    """Return whether a saved report can be rendered, and what its JSON document says."""
    folder = version.folder / path.stem
    folder.mkdir(exist_ok=True)
    shutil.copyfile(path, folder / "report.json")
    shown = version.shrink("report", str(folder))
    pages = sorted(p.name for p in folder.iterdir())
    compared = version.shrink("diff", str(folder), str(folder))
    return {"report": error_of(shown), "pages": pages, "diff": error_of(compared)}


def main() -> int:
    """Compare group by group; print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("old", type=Path)
    groups = ("mistakes", "saved", "recipes", "files")
    parser.add_argument("--only", nargs="+", choices=groups, default=groups)
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=RECIPES)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    failed = 0

    def compare(case: str, old: Any, new: Any) -> None:
        nonlocal failed
        found = list(differences(old, new))
        failed += bool(found)
        say(f"{'DIFFERS' if found else 'same   '} {case}")
        for line in found:
            say(f"        {line}")

    with tempfile.TemporaryDirectory() as temporary:
        old = Version(options.old.resolve(), Path(temporary) / "old")
        new = Version(HERE, Path(temporary) / "new")
        if "mistakes" in options.only:
            for name, (text, words) in MISTAKES.items():
                compare(name, mistake(old, text, words), mistake(new, text, words))
        if "saved" in options.only:
            for path in sorted((HERE / "tests/report/saved").glob("*.json")):
                compare(f"saved {path.name}", saved_facts(old, path), saved_facts(new, path))
        made: list[Path] = sorted(options.models.rglob("*.tflite")) if options.models else []
        if "recipes" in options.only:
            for name in options.recipes:
                facts = []
                for version in (old, new):
                    words = recipe_command(version.checkout, name, options.full)
                    done = version.shrink(*words, "--output", f"runs/{name}")
                    folder = version.folder / "runs" / name
                    held = (folder / "report.json").is_file()
                    facts.append({"run": error_of(done), **(run_facts(folder) if held else {})})
                compare(name, *facts)
                made += sorted((old.folder / "runs" / name / "artifacts").glob("*.tflite"))[:1]
        if "files" in options.only:
            for path in made:
                compare(f"file {path.name}", file_facts(old, path), file_facts(new, path))
    say(f"{failed} cases differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
