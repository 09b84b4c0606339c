"""A run takes from the store what would come out again, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import StageError
from shrink.contract.job import StepJob
from shrink.run.options import RunOptions
from tests.run.fake_worker import FakeWorker, run, runner_of, statuses


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    before = set(sys.modules)
    yield
    _forget(before)


def _forget(before: set[str]) -> None:
    for name in set(sys.modules) - before:
        if "helper" in name:
            del sys.modules[name]


def _recipe(folder: Path, text: str, **sections: Any) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(text)
    return {
        "name": "r",
        "model": f"{folder / 'model.py'}:build",
        "data": {"source": "digits"},
        "stages": [{"train": {"epochs": 1}}, {"quantize": {}}],
        **sections,
    }


_STATIC = "def build():\n    import helper_s\n    return helper_s.WIDTH\n"
_HIDDEN = """
import importlib, sys
sys.path.insert(0, __file__.rpartition("/")[0] + "/hidden")
def build():
    return importlib.import_module("helper_" + "h").WIDTH
"""


@pytest.mark.parametrize("name", ["helper_s.py", "hidden/helper_h.py"])
def test_run_builds_anew_when_a_module_of_the_builder_has_changed(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "a"))
    recipe = _recipe(tmp_path / "a", _STATIC if name == "helper_s.py" else _HIDDEN)
    helper, before = tmp_path / "a" / name, set(sys.modules)
    helper.parent.mkdir(exist_ok=True)
    found = []
    for width in (8, 8, 640, 640):
        helper.write_text(f"WIDTH = {width}")
        report = run(recipe, tmp_path / "out", FakeWorker())
        artifact = (tmp_path / "out" / "artifacts" / "00-train.keras").read_text()
        found.append((artifact, *statuses(report)))
        _forget(before)
    assert found == [
        ("train 8 0", "done", "done"),
        ("train 8 0", "cached", "cached"),
        ("train 640 0", "done", "done"),
        ("train 640 0", "cached", "cached"),
    ]


_READS = """
from pathlib import Path
def examples():
    return (Path(__file__).parent / "x.txt").read_text()
def build():
    return "model"
"""


def test_run_reads_anew_what_lies_beside_a_python_source(tmp_path: Path) -> None:
    found = []
    for folder, content in (("a", "A"), ("a", "A"), ("b", "B"), ("a", "C"), ("a", "C")):
        data = {"source": "python", "path": f"{tmp_path / folder / 'model.py'}:examples"}
        recipe = _recipe(tmp_path / folder, _READS, data=data)
        (tmp_path / folder / "x.txt").write_text(content)
        report = run(recipe, tmp_path / "out", FakeWorker())
        artifact = (tmp_path / "out" / "artifacts" / "00-train.keras").read_text()
        found.append((artifact[-5:-4], statuses(report)[0]))
    assert found == [("A", "done"), ("A", "cached"), ("B", "done"), ("C", "done"), ("C", "cached")]


@dataclass
class _Edited(FakeWorker):
    """Somebody edits the builder while the worker is busy."""

    entry: Path = Path()

    def __call__(self, job: StepJob, work: Path, on_event: Callable[..., None]) -> dict[str, Any]:
        done = super().__call__(job, work, on_event)
        self.entry.write_text("def build():\n    return 'new'\n")
        return done


def test_run_keeps_no_result_under_the_key_of_code_that_was_edited_meanwhile(
    tmp_path: Path,
) -> None:
    recipe = _recipe(tmp_path / "a", "def build():\n    return 'old'\n")
    edited = run(recipe, tmp_path / "out", _Edited(entry=tmp_path / "a" / "model.py"))
    assert [warning["code"] for warning in edited["warnings"]].count("code-changed") == 1
    again = run(recipe, tmp_path / "out", FakeWorker())
    artifact = (tmp_path / "out" / "artifacts" / "00-train.keras").read_text()
    assert (artifact, statuses(again)[0]) == ("train new 0", "done")


_MORE_LATER = """
import sys
from pathlib import Path
def examples():
    calls = vars(sys).setdefault("_shrink_test_calls", [])
    calls.append(1)
    return (Path(__file__).parent / f"{min(len(calls), 2)}.txt").read_text()
def build():
    return "model"
"""


def test_run_finds_its_stages_where_a_later_one_showed_more_of_their_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_shrink_test_calls", [], raising=False)
    data = {"source": "python", "path": f"{tmp_path / 'a' / 'model.py'}:examples"}
    recipe = _recipe(tmp_path / "a", _MORE_LATER, data=data)
    for name in ("1.txt", "2.txt"):
        (tmp_path / "a" / name).write_text(name)
    run(recipe, tmp_path / "out", FakeWorker())
    assert statuses(run(recipe, tmp_path / "out", FakeWorker())) == ["cached", "cached"]


def test_run_goes_on_where_it_was_killed_before_its_code_was_known(tmp_path: Path) -> None:
    data = {"source": "python", "path": f"{tmp_path / 'a' / 'model.py'}:examples"}
    recipe = _recipe(tmp_path / "a", _READS, data=data)
    (tmp_path / "a" / "x.txt").write_text("A")
    with pytest.raises(KeyboardInterrupt):
        run(recipe, tmp_path / "out", FakeWorker(killed=True))
    again = FakeWorker(killed=True)
    with pytest.raises(KeyboardInterrupt):
        run(recipe, tmp_path / "out", again)
    (tmp_path / "a" / "x.txt").write_text("B")
    other = FakeWorker()
    run(recipe, tmp_path / "out", other)
    assert (again.went_on, other.went_on[0]) == ([True], False)


def test_run_takes_a_baseline_from_the_store_whatever_training_says(tmp_path: Path) -> None:
    (tmp_path / "model.h5").write_bytes(b"weights")
    recipe: dict[str, Any] = {
        "name": "r",
        "model": str(tmp_path / "model.h5"),
        "data": {"source": "digits"},
        "stages": [{"quantize": {}}, {"prune": {"epochs": 1, "from": "baseline"}}],
    }
    assert statuses(run(recipe, tmp_path / "out", FakeWorker())) == ["done"] * 3
    recipe["training"] = {"optimizer": {"learning_rate": 0.5}, "patience": 3}
    worker = FakeWorker()
    assert statuses(run(recipe, tmp_path / "out", worker)) == ["cached", "cached", "done"]
    assert worker.jobs[0].training["patience"] == 3


def test_every_step_is_planned_with_what_the_group_had_when_the_run_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([16 * 10**9, *[1] * 9])
    monkeypatch.setattr("shrink.run.host_plan.group_left_bytes", lambda: next(left))
    (tmp_path / "model.h5").write_bytes(b"weights")
    worker = FakeWorker()
    recipe: dict[str, Any] = {
        "name": "r",
        "model": str(tmp_path / "model.h5"),
        "data": {"source": "digits"},
        "stages": [{"quantize": {}}],
    }
    assert statuses(run(recipe, tmp_path / "out", worker)) == ["done"] * 2
    limits = {job.training["host_memory_limit"] for job in worker.jobs}
    assert limits == {int(16 * 10**9 * 0.9) + 400_000_000}


def test_a_run_says_which_settings_it_replaces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = _recipe(tmp_path / "a", "def build():\n    return 'model'\n")
    for epochs in (1, 1, 2):
        recipe["stages"] = [{"train": {"epochs": epochs}}]
        runner_of(recipe, tmp_path / "out").run()
        said = capsys.readouterr().err
        assert ("replaced an earlier run" in said) == (epochs == 2)
    assert "train.epochs was 1, is 2" in said
    assert "--output" in said


def test_an_artifact_that_is_only_measured_again_counts_as_cached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = _recipe(tmp_path / "a", "def build():\n    return 'model'\n")
    recipe["stages"] = [{"train": {"epochs": 1}}]
    options = RunOptions(tmp_path / "validated", measured_on="validation")
    runner_of(recipe, tmp_path / "validated", options).run()
    capsys.readouterr()
    runner_of(recipe, tmp_path / "out").run()
    said = capsys.readouterr().err
    assert "train: cached" in said
    assert "done in" not in said


@pytest.mark.parametrize(
    ("stages", "name"),
    [
        ([{"train": {"epochs": 1}}, {"quantize": {}}], "the model of stage train"),
        ([{"quantize": {}}], "m.keras"),
    ],
)
def test_an_error_names_no_file_of_the_store(stages: list[Any], name: str, tmp_path: Path) -> None:
    def refuse(job: StepJob, work: Path, on_event: Callable[..., None]) -> dict[str, Any]:
        if job.kind == "quantize":
            path = job.inputs["model"].path
            raise StageError(f"{path} is odd", subject=str(path), hint=f"mend {path}")
        return FakeWorker()(job, work, on_event)

    recipe = _recipe(tmp_path, "def build():\n    return 'model'\n", stages=stages)
    if name == "m.keras":
        (tmp_path / name).touch()
        recipe["model"] = name = str(tmp_path / name)
    with pytest.raises(StageError) as caught:
        run(recipe, tmp_path / "out", refuse)
    error = caught.value
    assert (error.message, error.subject, error.hint) == (f"{name} is odd", name, f"mend {name}")
