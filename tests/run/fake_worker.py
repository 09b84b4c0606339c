"""A worker that trains nothing: it runs the user's code as a real one does, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shrink.base.cache import cache_root
from shrink.base.console import Console
from shrink.base.progress import Progress
from shrink.contract.codec import to_plain
from shrink.contract.job import StepJob
from shrink.model import user_modules as user_code
from shrink.recipe.load import recipe_from_mapping
from shrink.recipe.plan import build_plan
from shrink.run.options import RunOptions
from shrink.run.runner import Runner
from shrink.run.store import Store
from shrink.run.supervisor import Attempt


@dataclass
class FakeWorker:
    """Stands for `shrink.run.process.attempt`; the artifact is what the builder returned.

    Attributes:
        jobs: those that it was given.
        result: what it measures.
        results: what it measures of each job, beside that.
        scores: of each job.
        went_on: of each job, whether it found what `killed` left.
        killed: whether the run is ended in the middle of the step.
        unreadable: whether an example cannot be read, and so not told from others.
    """

    jobs: list[StepJob] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)
    went_on: list[bool] = field(default_factory=list)
    killed: bool = False
    unreadable: bool = False

    def __call__(self, job: StepJob, work: Path, on_event: Callable[..., None]) -> dict[str, Any]:
        self.jobs.append(job)
        source = job.inputs["model"]
        built: Any = source.path.name
        if source.function is not None:
            user_code.imported.cache_clear()  # a fresh process
            built = user_code.function_of(source.path, source.function)()
        if job.data["source"] == "python":
            path, _, function = job.data["path"].rpartition(":")
            built = [built, user_code.function_of(Path(path), function)()]
        assert job.checkpoints is not None
        self.went_on.append((job.checkpoints / "update-9").exists())
        on_event(Progress(epoch=1, epochs=1, step=1, steps=2))
        if self.killed:
            job.checkpoints.mkdir(parents=True, exist_ok=True)
            (job.checkpoints / "update-9").touch()
            raise KeyboardInterrupt
        produced = {"artifact": "model.keras", "scores": "scores.json"}
        (work / "model.keras").write_text(f"{job.kind} {built} {job.split_seed}")
        if job.kind != "baseline" and not self.unreadable:
            (work / "splits.bin").write_text(f"{job.data['path']} {job.split_seed}")
            produced["splits"] = "splits.bin"
        scores = self.scores[len(self.jobs) - 1] if self.scores else {}
        (work / "scores.json").write_text(json.dumps(scores))
        measured = {"at": "2026-11-22T00:00:00", "machine": "toy"}
        figures = {"metrics": {"accuracy": 0.5}, "examples": 100}
        own = self.results[len(self.jobs) - 1] if self.results else {}
        return {
            "result": {"measured": measured, **figures, **self.result, **own},
            "files": produced,
        }


def runner_of(
    recipe: dict[str, Any],
    output: Path,
    options: RunOptions | None = None,
    worker: Attempt | None = None,
    *,
    quiet: bool = False,
) -> Runner:
    """Return what runs a recipe with a fake worker."""
    plan = build_plan(recipe_from_mapping(recipe, "test"))
    console = Console(quiet=quiet)
    store = Store(cache_root(), console.warn)
    runner = Runner(plan, options or RunOptions(output), store, console)
    runner.attempt = worker or FakeWorker()
    return runner


def run(recipe: dict[str, Any], output: Path, worker: Attempt) -> dict[str, Any]:
    """Run a recipe with a fake worker and return its report."""
    result = runner_of(recipe, output, worker=worker, quiet=True).run()
    if result.error is not None:
        raise result.error
    return dict(to_plain(result.report))


def statuses(report: dict[str, Any]) -> list[str]:
    """Return how each stage came to its result."""
    return [stage["status"] for stage in report["stages"]]
