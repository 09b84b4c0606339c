"""A sweep runs every combination, shares what they have in common, and compares them."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest

from shrink.base.console import Console
from shrink.base.errors import Interrupted, RecipeError, StageError
from shrink.cli.reports import compare
from shrink.recipe.matrix import load_variants
from shrink.recipe.plan import build_plan
from shrink.run.options import RunOptions
from shrink.run.parallel import Pool, check_memory
from shrink.run.sweep import Sweep, SweepResult, plan_sweep
from tests.run.fake_worker import FakeWorker

RECIPE = """\
name: r
model: model.py:build
data: {source: digits}
stages:
  - train: {epochs: 1}
  - prune: {sparsity: 0.5, epochs: 0}
  - quantize: {}
"""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TF_CONFIG", raising=False)
    (tmp_path / "model.py").write_text("def build():\n    return 1\n", encoding="utf-8")


class Worker(FakeWorker):
    """Measures what its settings say; fails, or is interrupted, at one sparsity."""

    def __init__(self, fails_at: float = -1, stops_at: float = -1) -> None:
        super().__init__()
        self.fails_at, self.stops_at = fails_at, stops_at

    def __call__(self, job: Any, work: Path, on_event: Any) -> dict[str, Any]:
        done = super().__call__(job, work, on_event)
        sparsity = (job.config or {}).get("sparsity") if job.kind == "prune" else None
        if sparsity == self.fails_at:
            raise StageError("it is too sparse", subject=job.name)
        if sparsity == self.stops_at:
            raise Interrupted("interrupted")
        own = job.inputs["model"].path
        text = own.read_text() if job.kind == "quantize" else ""
        if job.kind == "prune":
            kept = (work / "model.keras").read_text()
            (work / "model.keras").write_text(f"{kept} {sparsity}")
        value = float(text.split()[-1]) if text else 0.0
        seed = int(job.split_seed)
        done["result"]["metrics"] = {"accuracy": 0.9 - value / 10 + seed / 100}
        done["result"]["measured"]["at"] = datetime.now(UTC).isoformat(timespec="seconds")
        with (work.parents[1] / "computed").open("a", encoding="utf-8") as stream:
            stream.write(f"{job.kind} {sparsity or value}\n")
        done["result"]["size"] = {"tflite_bytes": int(1000 * (1 - value))}
        return done


def sweep(
    root: Path, *texts: str, worker: FakeWorker | None = None, more: str = "", **how: Any
) -> SweepResult:
    (root / "r.yaml").write_text(RECIPE + more, encoding="utf-8")
    found = load_variants(root / "r.yaml", texts)
    jobs = how.pop("jobs", 1)
    options = RunOptions(root / "out", **how)
    runs = Sweep(plan_sweep(found, options.output), options, found.repeat, Console(quiet=True))
    runs.attempt, runs.jobs = worker or Worker(), jobs
    return runs.run()


def computed(root: Path) -> list[str]:
    """What all workers have computed, forks of this process among them."""
    path = root / "cache" / "computed"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.unlink()
    return sorted(lines)


def statuses(folder: Path) -> list[str]:
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return [stage["status"] for stage in report["stages"]]


def test_sweep_computes_what_runs_share_once(tmp_path: Path) -> None:
    worker = Worker()
    result = sweep(tmp_path, "prune.sparsity=0.3,0.5,0.7", worker=worker)
    assert result.exit_code == 0
    folders = [tmp_path / "out" / f"prune.sparsity={text}" for text in ("0.3", "0.5", "0.7")]
    assert statuses(folders[0]) == ["done", "done", "done"]
    assert [statuses(folder) for folder in folders[1:]] == [["cached", "done", "done"]] * 2
    assert [job.kind for job in worker.jobs].count("train") == 1
    saved = json.loads((tmp_path / "out" / "compare.json").read_text(encoding="utf-8"))
    assert [row["settings"] for row in saved["rows"]] == [
        {"prune.sparsity": text} for text in ("0.3", "0.5", "0.7")
    ]
    assert "prune.sparsity = 0.3" in (tmp_path / "out" / "compare.md").read_text(encoding="utf-8")
    again = Worker()
    assert sweep(tmp_path, "prune.sparsity=0.3,0.5,0.7", worker=again).exit_code == 0
    assert again.jobs == []


def test_sweep_goes_on_after_a_missed_gate_and_a_failure(tmp_path: Path) -> None:
    gate = "gates: {tflite_bytes: 600}\n"
    result = sweep(tmp_path, "prune.sparsity=0.3,0.5,0.7", worker=Worker(), more=gate)
    assert result.exit_code == 1
    assert [row.status for row in result.comparison.rows] == ["missed", "passed", "passed"]
    assert result.comparison.rows[0].gates_missed == ("tflite_bytes",)
    broken = Worker(fails_at=0.6)
    result = sweep(tmp_path, "prune.sparsity=0.3,0.6,0.7", worker=broken, more=gate)
    assert result.exit_code == 4
    assert [row.status for row in result.comparison.rows] == ["missed", "failed", "passed"]
    told = result.comparison.rows[1].error
    assert told is not None
    assert told.message == "it is too sparse"
    assert "it is too sparse" in (tmp_path / "out" / "compare.md").read_text(encoding="utf-8")


def test_sweep_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    first = Worker(stops_at=0.5)
    result = sweep(tmp_path, "prune.sparsity=0.3,0.5,0.7", worker=first)
    assert result.exit_code == 130
    assert [row.status for row in result.comparison.rows] == ["finished", "stopped", "not run"]
    second = Worker()
    result = sweep(tmp_path, "prune.sparsity=0.3,0.5,0.7", worker=second)
    assert result.exit_code == 0
    assert [job.kind for job in second.jobs] == ["prune", "quantize"] * 2


def test_sweep_repeats_seeds_and_tells_their_spread(tmp_path: Path) -> None:
    result = sweep(tmp_path, "prune.sparsity=0.3,0.5", more="repeat: 3\n")
    groups = result.comparison.repeats
    assert [one.settings for one in groups] == [{"prune.sparsity": t} for t in ("0.3", "0.5")]
    assert [len(one.rows) for one in groups] == [3, 3]
    spread = groups[0].figures["accuracy"]
    values = [0.9 - 0.03 + seed / 100 for seed in range(3)]
    assert spread.mean == pytest.approx(statistics.fmean(values))
    assert spread.deviation == pytest.approx(0.01)
    # t(2) at 97.5 % is 4.302653 (any table of Student's t)
    assert spread.high == pytest.approx(spread.mean + 4.302653 * 0.01 / 3**0.5)
    (tmp_path / "out" / "prune.sparsity=0.3,training.seed=2" / "report.json").read_bytes()


def test_sweep_refuses_the_folder_of_another_recipe(tmp_path: Path) -> None:
    sweep(tmp_path, "prune.sparsity=0.3,0.5")
    saved = tmp_path / "out" / "compare.json"
    saved.write_text(saved.read_text(encoding="utf-8").replace('"title": "r"', '"title": "s"'))
    with pytest.raises(RecipeError, match="runs of the recipe 's'"):
        sweep(tmp_path, "prune.sparsity=0.3,0.5")
    assert sweep(tmp_path, "prune.sparsity=0.3,0.5", force=True).exit_code == 0


@pytest.mark.parametrize("name", ["compare.html", "compare.md", "compare.json"])
def test_files_of_the_user_are_not_overwritten(tmp_path: Path, name: str) -> None:
    sweep(tmp_path, "prune.sparsity=0.3,0.5")
    mine = tmp_path / "out" / name
    (tmp_path / "out" / "compare.json").unlink()
    mine.write_text('{"title": "r"}', encoding="utf-8")
    with pytest.raises(RecipeError, match="is not shrink's"):
        sweep(tmp_path, "prune.sparsity=0.3,0.5")
    runs = [tmp_path / "out" / f"prune.sparsity={text}" for text in ("0.3", "0.5")]
    with pytest.raises(RecipeError, match="is not shrink's"):
        compare(runs, tmp_path / "out", quiet=True)
    assert mine.read_text(encoding="utf-8") == '{"title": "r"}'
    assert sweep(tmp_path, "prune.sparsity=0.3,0.5", force=True).exit_code == 0
    compare(runs, tmp_path / "page", quiet=True)
    compare(runs, tmp_path / "page", quiet=True)


@pytest.mark.parametrize("published", [1, 2])
def test_a_sweep_that_was_killed_between_its_pages_continues(
    tmp_path: Path, published: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = list[Path]()
    replace = Path.replace

    def end(self: Path, target: Path) -> Path:
        if target.name.startswith("compare."):
            if len(pages) == published:
                raise KeyboardInterrupt
            pages.append(target)
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", end)
        with pytest.raises((KeyboardInterrupt, Interrupted)):
            sweep(tmp_path, "prune.sparsity=0.3,0.5")
    assert {path.name for path in (tmp_path / "out").glob("compare.*")} == {p.name for p in pages}
    assert sweep(tmp_path, "prune.sparsity=0.3,0.5").exit_code == 0
    assert len([*(tmp_path / "out").glob("compare.*")]) == 3


def test_plan_sweep_refuses_one_file_for_several_artifacts(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    found = load_variants(tmp_path / "r.yaml", ["prune.sparsity=0.3,0.5"])
    with pytest.raises(RecipeError, match="one file cannot hold"):
        plan_sweep(found, tmp_path / "x.tflite")


ALL = ["prune 0.3", "prune 0.5", "quantize 0.3", "quantize 0.5", "train 0.0"]


def test_sweep_in_jobs_computes_what_runs_share_once(tmp_path: Path) -> None:
    result = sweep(tmp_path, "prune.sparsity=0.3,0.5", jobs=2)
    assert computed(tmp_path) == ALL
    assert [row.status for row in result.comparison.rows] == ["finished", "finished"]
    assert result.comparison.jobs == 2
    assert any("a busy machine" in text for text in result.comparison.warnings)
    alone = sweep(tmp_path, "prune.sparsity=0.3,0.5")
    figures = [[row.figures for row in one.comparison.rows] for one in (result, alone)]
    assert figures[0] == figures[1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_sweep_without_the_store_computes_again_but_once(tmp_path: Path, jobs: int) -> None:
    sweep(tmp_path, "prune.sparsity=0.3,0.5")
    computed(tmp_path)
    time.sleep(1.1)  # the store tells by the second what was computed when
    sweep(tmp_path, "prune.sparsity=0.3,0.5", jobs=jobs, use_store=False)
    assert computed(tmp_path) == ALL


def test_sweep_in_jobs_ends_with_the_highest_code_of_its_runs(tmp_path: Path) -> None:
    result = sweep(tmp_path, "prune.sparsity=0.3,0.5", jobs=2, worker=Worker(fails_at=0.3))
    assert result.exit_code == 4
    assert [row.status for row in result.comparison.rows] == ["failed", "finished"]


def test_sweep_in_jobs_tells_of_a_run_that_was_killed(tmp_path: Path) -> None:
    class Killed(Worker):
        def __call__(self, job: Any, work: Path, on_event: Any) -> dict[str, Any]:
            if (job.config or {}).get("sparsity") == 0.5:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(job, work, on_event)

    result = sweep(tmp_path, "prune.sparsity=0.3,0.5", jobs=2, worker=Killed())
    assert [row.status for row in result.comparison.rows] == ["finished", "failed"]
    assert result.exit_code == 5
    told = result.comparison.rows[1].error
    assert told is not None
    assert "SIGKILL" in str(told.message)


def test_sweep_in_jobs_passes_an_interrupt_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = ForkProcess.start

    def begin_slowly(process: ForkProcess) -> None:
        begin(process)
        time.sleep(0.5)  # the fork is there, and interrupts

    monkeypatch.setattr(ForkProcess, "start", begin_slowly)

    class Waits(Worker):
        def __call__(self, job: Any, work: Path, on_event: Any) -> dict[str, Any]:
            if job.kind == "prune":
                while len(list((tmp_path / "out").glob("*/artifacts"))) < 2:
                    time.sleep(0.02)  # both have begun
                os.kill(os.getppid(), signal.SIGINT)
                time.sleep(60)
            return super().__call__(job, work, on_event)

    def interrupt(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise Interrupted("interrupted")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        result = sweep(tmp_path, "prune.sparsity=0.3,0.5", jobs=2, worker=Waits())
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 130
    assert [row.status for row in result.comparison.rows] == ["stopped", "stopped"]
    assert sweep(tmp_path, "prune.sparsity=0.3,0.5").exit_code == 0
    assert computed(tmp_path) == ALL


@pytest.mark.parametrize(
    ("limit", "host", "fits"),
    [
        (None, 16_000_000_000, True),
        (2_000_000_000, 16_000_000_000, True),
        (None, 3_000_000_000, False),
        (8_000_000_000, 16_000_000_000, False),
    ],
)
def test_runs_at_a_time_are_refused_where_the_host_has_too_little_memory(
    tmp_path: Path, limit: int | None, host: int, fits: bool
) -> None:
    more = f"training: {{memory_limit: {limit}}}\n" if limit else ""
    (tmp_path / "r.yaml").write_text(RECIPE + more, encoding="utf-8")
    plan = build_plan(load_variants(tmp_path / "r.yaml").each[0].loaded)
    if fits:
        check_memory([plan], 2, host)
        return
    with pytest.raises(RecipeError, match="2 runs in parallel need") as caught:
        check_memory([plan], 2, host)
    assert "use --jobs 1" in str(caught.value)


def test_an_interrupt_just_after_a_run_has_ended_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Pool(2)
    start = pool._start

    def interrupted_beside_an_ended_run(index: int, work: Callable[[int], object]) -> None:
        for _, process in pool._running.values():
            process.join()
        if pool._running:
            raise Interrupted("Ctrl-C")
        start(index, work)

    monkeypatch.setattr(pool, "_start", interrupted_beside_an_ended_run)
    with pytest.raises(Interrupted):
        list(pool.run(2, lambda number: number))
