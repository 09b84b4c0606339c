"""What workers print: a log per stage in the run folder, named by errors, shown live if asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shrink.base.cache import cache_root
from shrink.base.console import Console
from shrink.base.errors import ConversionError, ModelError, ResourceError, ShrinkError, StageError
from shrink.base.progress import Printed
from shrink.contract.job import StepJob
from shrink.recipe.load import load_recipe
from shrink.recipe.plan import build_plan
from shrink.run.folder import failed_folder
from shrink.run.options import RunOptions, RunResult
from shrink.run.runner import Runner
from shrink.run.store import Store
from shrink.run.supervisor import keep_log, with_log, with_names_of_the_user
from tests.cli.toy import RECIPE, write_toy
from tests.run.fake_worker import FakeWorker


class PrintingWorker(FakeWorker):
    """A fake worker that prints, and then fails where its job's stage is `fails`."""

    fails = ""
    says = "first"

    def __call__(self, job: StepJob, work: Path, on_event: Callable[..., None]) -> dict[str, Any]:
        (work / "worker.log").write_text(f"{self.says} {job.name}\n")
        on_event(Printed((f"{self.says} {job.name}",)))
        if job.name == self.fails:
            raise StageError("it went wrong", hint="do better")
        return super().__call__(job, work, on_event)


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunResult]:
    """Run a recipe of two stages, with the options given, by a worker that prints."""
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "store"))
    recipe = write_toy(tmp_path, RECIPE + "  - prune: {method: magnitude, sparsity: 0.5}\n")

    def run(worker: PrintingWorker, console: Console | None = None, **options: Any) -> RunResult:
        console = console or Console(quiet=True)
        chosen = RunOptions(tmp_path / "out", **options)
        store = Store(cache_root(), console.warn)
        runner = Runner(build_plan(load_recipe(recipe)), chosen, store, console)
        runner.attempt = worker
        return runner.run()

    return run


def worker(says: str = "first", fails: str = "") -> PrintingWorker:
    made = PrintingWorker()
    made.says, made.fails = says, fails
    return made


def logs(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((folder / "logs").iterdir())}


def test_run_keeps_a_log_of_every_stage_that_ran(go: Callable[..., RunResult]) -> None:
    both = {"00-train.log": "first train\n", "01-prune.log": "first prune\n"}
    folder = go(worker()).folder
    assert logs(folder) == both
    go(worker("never"))  # all is cached: the artifacts are those that the logs are of
    assert logs(folder) == both
    go(worker("second"), first="prune")
    assert logs(folder) == {**both, "01-prune.log": "second prune\n"}
    go(worker(), last="train")
    assert logs(folder) == {"00-train.log": "first train\n"}


def test_error_names_the_log_that_it_leaves(go: Callable[..., RunResult]) -> None:
    failed = go(worker(fails="prune"))
    log = failed.folder / "logs" / "01-prune.log"
    assert log.read_text() == "first prune\n"
    assert failed.error is not None
    assert failed.error.hint == f"do better (log: {log})"


def test_error_names_the_log_beside_a_finished_run(go: Callable[..., RunResult]) -> None:
    finished = go(worker()).folder
    before = logs(finished)
    failed = go(worker("second", fails="prune"), first="train")
    log = failed_folder(finished) / "logs" / "01-prune.log"
    assert failed.error is not None
    assert failed.error.hint == f"do better (log: {log})"
    both = {"00-train.log": "second train\n", "01-prune.log": "second prune\n"}
    assert logs(failed.folder) == both
    assert logs(finished) == before
    go(worker("third"), first="train")
    assert logs(finished)["00-train.log"] == "third train\n"
    assert not failed.folder.exists()


def test_a_file_in_the_place_of_the_logs_is_refused_before_anything_runs(
    go: Callable[..., RunResult], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "logs").write_text("a file")
    made = worker()
    with pytest.raises(ResourceError, match="File exists"):
        go(made, force=True)
    assert made.jobs == []


def test_log_that_cannot_be_removed_does_not_cost_the_report(
    go: Callable[..., RunResult], tmp_path: Path
) -> None:
    go(worker())
    (tmp_path / "out" / "logs" / "07-old.log").mkdir()
    finished = go(worker("second"), first="train")
    assert finished.error is None
    assert (tmp_path / "out" / "report.json").is_file()


def test_log_is_kept_by_its_begin_and_end_where_it_is_long(tmp_path: Path) -> None:
    source, line = tmp_path / "worker.log", b"a line of thirty-one bytes, full\n"
    source.write_bytes(b"begin\n" + line * 1_000_000 + b"end\n")
    left_out = source.stat().st_size - (4 << 20)
    kept = keep_log(source, tmp_path / "q.log").read_bytes()
    gap = f"\n--- {left_out} bytes are left out here ---\n".encode()
    before, found, after = kept.partition(gap)
    assert found
    assert before + after == source.read_bytes()[: 2 << 20] + source.read_bytes()[-(2 << 20) :]


def test_verbose_shows_what_workers_print_by_stage(
    go: Callable[..., RunResult], capsys: pytest.CaptureFixture[str]
) -> None:
    go(worker(), Console(verbose=True))
    assert "[1/2] train | first train\n" in capsys.readouterr().err
    go(worker("second"), Console(), first="train")
    assert "second train" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ConversionError("no", hint="give another"), "give another (log: run/logs/00-a.log)"),
        (StageError("no"), "read what the worker printed (log: run/logs/00-a.log)"),
        (ModelError("no such file", hint="name one"), "name one"),
    ],
)
def test_with_log_names_it_where_more_than_the_error_may_stand(
    error: ShrinkError, hint: str
) -> None:
    assert with_log(error, None) is error
    assert with_log(error, Path("run/logs/00-a.log")).hint == hint


def test_with_names_of_the_user_names_no_file_of_the_store() -> None:
    stored = "/cache/steps/f9/f9aa.tflite"
    error = ModelError(f"{stored} is bad", subject=stored, hint=f"look at {stored}")
    renamed = with_names_of_the_user(error, {stored: "/home/me/my.tflite"})
    assert str(renamed) == (
        "/home/me/my.tflite: /home/me/my.tflite is bad\n  hint: look at /home/me/my.tflite"
    )
    plain = with_names_of_the_user(ModelError("bad"), {stored: "x"})
    assert (plain.subject, plain.hint) == (None, None)
