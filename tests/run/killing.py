"""Runs, sweeps and searches, each in a fork, that are killed at every write, sync and rename."""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shrink.base.cache import cache_root
from shrink.base.console import Console
from shrink.base.files import TEMPORARY_PREFIX, sha256
from shrink.base.packages import versions
from shrink.contract.job import StepJob
from shrink.recipe.load import load_recipe
from shrink.recipe.matrix import load_variants
from shrink.recipe.plan import build_plan
from shrink.run.options import RunOptions
from shrink.run.runner import Runner
from shrink.run.store import Store
from shrink.run.sweep import Sweep, plan_sweep
from shrink.search.session import JOURNAL
from tests.run.fake_worker import FakeWorker
from tests.search.fake import FakeAttempt, lost_settings, search

RECIPE = """\
name: r
model: model.py:build
data: {source: digits}
stages:
  - train: {epochs: 1}
  - prune: {method: magnitude, sparsity: 0.5, epochs: 0}
"""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_EVENTS = ("os.rename", "os.link", "os.symlink", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


class Worker(FakeWorker):
    """Appends the stage's name to a file that no kill is counted for, once it has trained."""

    def __call__(self, job: StepJob, work: Path, on_event: Callable[..., None]) -> dict[str, Any]:
        (work / "worker.log").write_text(f"{job.name}\n")
        done = super().__call__(job, work, on_event)
        with Path(os.environ["COMPUTED"]).open("a", encoding="utf-8") as stream:
            stream.write(f"{job.name} {(job.config or {}).get('sparsity')}\n")
        return done


def kill_at(root: Path, number: int) -> Callable[[], int]:
    """End this process at its `number`-th change below a folder; return what counts them.

    A change is an opening for writing, half of a content, a sync, a rename, a link or a removal.
    """
    count, prefix = 0, f"{root}/"

    def change(*places: object) -> None:
        nonlocal count
        if any(str(place).startswith(prefix) for place in places):
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS:
            change(*arguments[:2])
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING:
            change(arguments[0])

    def sync(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        change(place)
        fsync(descriptor)
        change(place)

    def write(path: Path, content: bytes) -> int:
        with path.open("wb") as stream:
            stream.write(content[: len(content) // 2])
            stream.flush()
            change(path)
            stream.write(content[len(content) // 2 :])
        return len(content)

    fsync = os.fsync
    os.fsync, Path.write_bytes = sync, write  # type: ignore[assignment,method-assign]
    sys.addaudithook(hear)
    return lambda: count


def _run(root: Path, sparsity: str) -> int:
    """Run the recipe in a folder, or a sweep where there are several values of sparsity."""
    console, options = Console(quiet=True), RunOptions(root / "out")
    if "," in sparsity:
        found = load_variants(root / "r.yaml", [f"prune.sparsity={sparsity}"])
        runs = Sweep(plan_sweep(found, options.output), options, found.repeat, console)
        runs.attempt = Worker()
        return runs.run().exit_code
    plan = build_plan(load_recipe(root / "r.yaml", [f"prune.sparsity={sparsity}"]))
    runner = Runner(plan, options, Store(cache_root(), console.warn), console)
    runner.attempt = Worker()
    return runner.run().exit_code


class SearchWorker(FakeAttempt):
    """Writes down each stage that it has computed, as `Worker` does."""

    def __call__(self, job: StepJob, work: Path, on_event: Callable[..., None]) -> dict[str, Any]:
        done = super().__call__(job, work, on_event)
        if job.made is None:
            with Path(os.environ["COMPUTED"]).open("a", encoding="utf-8") as stream:
                stream.write(f"{job.kind} {(work / done['files']['artifact']).read_text()}\n")
        return done


def _search(root: Path) -> int:
    """Search among six recipes; one is too large, and three of the others are trained."""
    space = {"prune.parameters": [0.3, 0.6, 0.7], "quantize.scheme": ["static_wi8_ai8", "float16"]}
    limits = {"constraints": {"tflite_bytes": 130_000}, "trials": 3}
    return search(root, {"space": space, **limits}, SearchWorker()).run()


def _in_fork(root: Path, action: Callable[[], int]) -> int:
    """Return the exit code of an action in a fork, negative for a signal."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 70
    try:
        os.environ |= {"SHRINK_CACHE_DIR": str(root / "store"), "COMPUTED": str(_computed(root))}
        code = action()
    finally:
        os._exit(code)


def _computed(root: Path) -> Path:
    return root.with_name(f"{root.name}-computed")


def _reports(root: Path) -> Iterator[Path]:
    for report in (root / "out").glob("**/report.json"):
        if not any(part.startswith(TEMPORARY_PREFIX) for part in report.parts):
            yield report


def _check_reports(root: Path) -> None:
    """Each report that there is speaks of the artifacts that lie beside it."""
    for report in _reports(root):
        for stage in json.loads(report.read_text("utf-8"))["stages"]:
            assert sha256(report.parent / stage["artifact"]) == stage["sha256"], report


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def _check_whole(root: Path, reference: Path) -> None:
    """Folder and store hold what those of an undisturbed run do, and nothing else."""
    assert _names(root / "out") ^ _names(reference / "out") == set()
    _check_reports(root)
    _check_store(root / "store")


def _check_store(store: Path) -> None:
    """Every entry is whole, and nothing of a killed process is left."""
    assert not list(store.rglob(f"{TEMPORARY_PREFIX}*"))
    assert not list((store / "work").iterdir())
    assert not list((store / "checkpoints").iterdir())
    warnings: list[str] = []
    opened = Store(store, warnings.append)
    assert all(opened.find(step.name) for step in (store / "steps").iterdir())
    assert warnings == []


def kill_everywhere(root: str, sparsity: str, before: str, every: int) -> dict[str, int]:
    """Kill a run at each of its changes, run it again, and check that nothing was lost.

    Args:
        root: an empty folder.
        sparsity: of the run; several values with commas are a sweep.
        before: sparsity of the run that has finished in the same folder before; empty for none.
        every: only each so-manieth change.

    Returns:
        `changes`, of which an undisturbed run has fewer; `lost`, the most stages that one run had
        to compute twice.
    """
    template = Path(root, "template")
    template.mkdir()
    (template / "r.yaml").write_text(RECIPE, encoding="utf-8")
    (template / "model.py").write_text("def build():\n    return 1\n", encoding="utf-8")
    versions()
    if before:
        assert _in_fork(template, lambda: _run(template, before)) == 0
        _computed(template).unlink()

    def check(run: Path, reference: Path) -> int:
        _check_whole(run, reference)
        first, again = (_computed(one).read_text("utf-8").splitlines() for one in (reference, run))
        assert set(first) == set(again)
        return len(again) - len(first)

    return _kill_each(template, lambda folder: _run(folder, sparsity), check, every)


def kill_a_search(root: str, every: int) -> dict[str, int]:
    """Kill a search at each of its changes, and start it again; see `kill_everywhere`.

    Every trial that waits or was stopped is trained later, and no recipe in two trials.
    """
    import sklearn.gaussian_process  # noqa: F401  # else each fork imports it

    template = Path(root, "template")
    template.mkdir()
    versions()

    def check(run: Path, reference: Path) -> int:
        _check_reports(run)
        _check_store(run / "store")
        trials = [
            [
                one
                for one in json.loads(path.read_text("utf-8"))["trials"]
                if one["status"] == "done"
            ]
            for path in (reference / "out" / "search.json", run / "out" / "search.json")
        ]
        settings = [json.dumps(one["settings"], sort_keys=True) for one in trials[1]]
        assert len(settings) == len(set(settings)) == len(trials[0])
        assert lost_settings(run / "out" / JOURNAL) == []
        assert not list((run / "out").rglob(f"{TEMPORARY_PREFIX}*"))
        stages = _computed(run).read_text("utf-8").splitlines()
        return len(stages) - len(set(stages))

    return _kill_each(template, _search, check, every)


def _trained(root: Path) -> list[Any]:
    trials = json.loads((root / "out" / "search.json").read_text("utf-8"))["trials"]
    return [one["settings"] for one in trials if one["status"] == "done"]


def _kill_each(
    template: Path,
    run: Callable[[Path], int],
    check: Callable[[Path, Path], int],
    every: int,
) -> dict[str, int]:
    reference, lost = template.with_name("reference"), 0
    shutil.copytree(template, reference)
    assert _in_fork(reference, lambda: run(reference)) == 0

    def killed(folder: Path, number: int) -> int:
        kill_at(folder, number)
        return run(folder)

    for number in itertools.count(1, every):
        folder = template.with_name(str(number))
        shutil.copytree(template, folder)
        ended = _in_fork(folder, functools.partial(killed, folder, number))
        if ended == 0:  # before so many changes
            return {"changes": number, "lost": lost}
        assert ended == -signal.SIGKILL, number
        _check_reports(folder)
        assert _in_fork(folder, functools.partial(run, folder)) == 0, number
        lost = max(lost, check(folder, reference))
        shutil.rmtree(folder)
    raise AssertionError("without end")
