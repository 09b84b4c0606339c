"""A search whose workers compute figures from settings, in closed form, and train nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shrink.base.console import Console
from shrink.base.errors import ShrinkError
from shrink.base.yaml import loads
from shrink.contract.job import Outline, StepJob
from shrink.recipe.load import RawRecipe
from shrink.recipe.plan import Plan
from shrink.run.options import RunOptions
from shrink.search.candidates import Candidates
from shrink.search.choose import Sizes
from shrink.search.session import Search

RECIPE = """
name: r
model: model.py:build
data: {source: digits}
stages:
  - train: {epochs: 1}
  - prune: {method: channels, parameters: 0.5, epochs: 1}
  - quantize: {}
"""
EXAMPLES = 2000
SPACE: dict[str, Any] = {
    "prune.parameters": {"low": 0.1, "high": 0.9, "step": 0.1},
    "quantize.scheme": ["static_wi8_ai8", "float16"],
}


def size_of(parameters: float, scheme: str) -> int:
    """Return the bytes of a file: a part of 100,000, two bytes a weight as float16."""
    return round(100_000 * parameters) * (2 if scheme == "float16" else 1)


def right_of(parameters: float, scheme: str) -> int:
    """Return how many of 2,000 validation examples are right: fewer where little is left."""
    lost = max(0, round(200 * (0.6 - parameters)))
    return 1960 - lost - (10 if scheme == "static_wi8_ai8" else 0)


class FakeAttempt:
    """Takes the place of `attempt`.

    Attributes:
        jobs: that it was given, without those that measure again.
        measured: kind of stage and split of each job that measured metrics.
        raises: by the parameters that are left, what pruning raises.
    """

    def __init__(self) -> None:
        self.jobs: list[StepJob] = []
        self.measured: list[tuple[str, str]] = []
        self.raises: dict[float, ShrinkError] = {}

    def __call__(self, job: StepJob, work: Path, on_event: Callable[..., None]) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        if job.made is not None:
            settings = json.loads(job.made.artifact.read_text())
        else:
            self.jobs.append(job)
            path = job.inputs["model"].path
            settings = json.loads(path.read_text()) if path.suffix == ".keras" else {}
            settings |= {job.kind: dict(job.config or {})}
        left = settings.get("prune", {}).get("parameters")
        if job.kind == "prune" and left in self.raises:
            raise self.raises[left]
        name = "model.tflite" if job.kind == "quantize" else "model.keras"
        (work / name).write_text(json.dumps(settings))
        scheme = settings.get("quantize", {}).get("scheme")
        right = 1980 if scheme is None else right_of(left, scheme)
        scores = [1.0] * right + [0.0] * (EXAMPLES - right)
        figures: dict[str, Any] = {}
        if job.measured_on != "nothing":
            self.measured.append((job.kind, job.measured_on))
            size = 400_000 if scheme is None else size_of(left, scheme)
            figures = {"metrics": {"accuracy": right / EXAMPLES}, "examples": EXAMPLES}
            figures["size"] = {"tflite_bytes": size}
        (work / "scores.json").write_text(json.dumps({"accuracy": scores} if figures else {}))
        measured = {"at": "2026-11-22T00:00:00", "machine": "toy"}
        return {
            "result": {"measured": measured, **figures},
            "files": {"artifact": name, "scores": "scores.json"},
        }


class FakeSizes(Sizes):
    """Knows the size of every trial."""

    def of(self, plan: Plan) -> Outline:
        """Return it in closed form."""
        prune: Any = plan.step("prune").config
        scheme: Any = plan.step("quantize").config
        return Outline(figures={"tflite_bytes": size_of(prune.parameters, scheme.scheme)})


def lost_settings(journal: Path) -> list[Any]:
    """Return the settings of stopped trials that neither wait nor were trained later."""
    found: Any = json.loads(journal.read_text(encoding="utf-8"))
    trials = [entry["ended"] for entry in found["entries"]]
    lost = []
    for number, one in enumerate(trials):
        if one is not None and one["status"] == "stopped":
            later = [o["settings"] for o in trials[number + 1 :] if o and o["status"] == "done"]
            if one["settings"] not in [*found["waiting"], *later]:
                lost.append(one["settings"])
    return lost


def search(
    root: Path, config: Mapping[str, Any], attempt: Any, *, gates: Any = None, **options: Any
) -> Search:
    """Return a search over two keys of a recipe.

    Args:
        root: of its folder.
        config: the `search` section; a space of two keys unless it names one.
        attempt: takes the place of workers.
        gates: of the recipe.
        options: of its runs.
    """
    (root / "model.py").write_text("def build():\n    return 1\n", encoding="utf-8")
    value: Any = loads(RECIPE, "r").value
    value["model"] = str(root / "model.py:build")
    value["search"] = {"space": SPACE, **config}
    value |= {} if gates is None else {"gates": gates}
    candidates = Candidates.read(RawRecipe(value, {}), Path("r"), ())
    given = RunOptions(options.pop("output", root / "out"), **options)
    found = Search(candidates, given, Console(quiet=True))
    found.runs.attempt = attempt
    found.make_sizes = FakeSizes
    return found
