"""A run folder is replaced by a finished run only; a failed one is written beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import RecipeError
from shrink.contract.codec import to_plain
from shrink.contract.details import Details, Task, TaskOutput
from shrink.contract.result import StepResult
from shrink.recipe.load import load_recipe
from shrink.recipe.plan import Plan, build_plan
from shrink.run.folder import RunFolder, failed_folder
from tests.cli.toy import write_toy
from tests.report.toys import failure, outcome


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Return the plan of a recipe with one stage."""
    return build_plan(load_recipe(write_toy(tmp_path / "recipe")))


def run(plan: Plan, path: Path, content: str | None, force: bool = False) -> dict[str, Any]:
    """Make a run whose stage leaves an artifact of this content; None: it fails."""
    folder = RunFolder(path, plan, force)
    (step,) = plan.steps
    result = outcome(step.name, 90, 1_000, None)
    if content is None:
        error = failure(message="no")
        result = replace(result, status="failed", result=StepResult(), artifact=None, error=error)
    else:
        source = path.parent / "made.keras"
        source.write_text(content)
        artifact, digest = folder.add(step, {"artifact": source})
        result = replace(result, artifact=artifact, sha256=digest)
    return dict(to_plain(folder.write([result], [step.name])))


def report_in(path: Path) -> Any:
    return json.loads((path / "report.json").read_text())["stages"][0]["status"]


def test_failed_run_leaves_the_finished_one_alone_and_is_written_beside_it(
    plan: Plan, tmp_path: Path
) -> None:
    path = tmp_path / "runs" / "toy"
    path.parent.mkdir()
    run(plan, path, "good")
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    run(plan, path, None)
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before
    assert report_in(failed_folder(path)) == "failed"


@pytest.mark.parametrize(("part", "named"), [(0.5, True), (1, False)])
def test_report_names_a_larger_test_split_where_there_is_one(
    plan: Plan, tmp_path: Path, part: float, named: bool
) -> None:
    data = plan.recipe.data.model_copy(update={"test_split": part})
    plan = replace(plan, recipe=plan.recipe.model_copy(update={"data": data}))
    warnings = run(plan, tmp_path / "toy", "good")["warnings"]
    (hint,) = [one["hint"] for one in warnings if one["code"] == "few-test-examples"]
    assert ("data.test_split" in hint) == named


def test_artifacts_of_a_finished_run_stay_until_the_next_is_written(
    plan: Plan, tmp_path: Path
) -> None:
    path = tmp_path / "toy"
    artifact = path / run(plan, path, "first")["stages"][0]["artifact"]
    folder = RunFolder(path, plan, False)
    (tmp_path / "other.keras").write_text("second")
    folder.add(plan.steps[0], {"artifact": tmp_path / "other.keras"})
    assert artifact.read_text() == "first"


def test_failed_run_is_replaced_in_its_place(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "toy"
    run(plan, path, None)
    assert report_in(path) == "failed"
    run(plan, path, "good")
    assert report_in(path) == "done"
    assert not failed_folder(path).exists()


@pytest.mark.parametrize("left", [None, "notes.txt"])
def test_finished_run_removes_what_an_earlier_failure_left_beside_it(
    plan: Plan, tmp_path: Path, left: str | None
) -> None:
    path = tmp_path / "toy"
    for content in ("good", None):
        run(plan, path, content)
    if left is not None:
        (failed_folder(path) / left).touch()
    run(plan, path, "better")
    assert report_in(path) == "done"
    assert failed_folder(path).exists() == (left is not None)


def test_failed_run_is_written_into_nobody_elses_folder(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "toy"
    run(plan, path, "good")
    failed_folder(path).mkdir()
    (failed_folder(path) / "report.md").write_text("mine")
    (failed_folder(path) / "notes.txt").write_text("mine")
    run(plan, path, None)
    assert {p.read_text() for p in failed_folder(path).iterdir()} == {"mine"}
    assert report_in(tmp_path / "toy.failed-2") == "failed"


def test_a_second_failure_removes_no_file_of_the_user_either(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "toy"
    run(plan, path, "good")
    mine = tmp_path / "toy.failed-2" / "artifacts" / "09-mine.keras"
    for folder in (failed_folder(path), mine.parent):
        folder.mkdir(parents=True)
    (failed_folder(path) / "notes.txt").write_text("mine")
    mine.write_text("mine")
    (tmp_path / "toy.failed-2" / "notes.txt").write_text("mine")
    run(plan, path, None)
    assert mine.read_text() == "mine"


def test_a_report_of_another_version_is_not_overwritten(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "toy"
    path.mkdir()
    (path / "report.json").write_text('{"schema_version": 2, "recipe": {"name": "other"}}')
    with pytest.raises(RecipeError, match="no run of shrink wrote"):
        run(plan, path, "good")
    assert json.loads((path / "report.json").read_text())["schema_version"] == 2


@pytest.mark.parametrize(
    ("path", "expected"),
    [("runs/toy", "runs/toy.failed"), (".", "../here.failed"), ("sub/..", "../here.failed")],
)
def test_failed_folder_lies_beside_the_folder_whatever_it_is_called(
    path: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    monkeypatch.chdir(here)
    assert failed_folder(Path(path)).resolve() == (here / expected).resolve()


@pytest.mark.parametrize(
    ("override", "replaced"),
    [
        (None, set()),
        ("training.seed=7", {"training.seed"}),
        ("task.loss=sparse_categorical_crossentropy", {"task.loss"}),
    ],
)
def test_what_an_unfinished_run_left_open_is_no_other_setting(
    plan: Plan, tmp_path: Path, override: str | None, replaced: set[str]
) -> None:
    path = tmp_path / "runs" / "toy"
    path.parent.mkdir()
    run(plan, path, None)
    again = build_plan(load_recipe(plan.source, [override] if override else []))
    (step,) = again.steps
    output = TaskOutput(name="p", loss="sparse_categorical_crossentropy", from_logits=False)
    task = Task(outputs=(output,), loss_weights=(1.0,), metrics=("accuracy",))
    details = Details(task=task)
    done = outcome(step.name, 90, 1_000, None)
    done = replace(done, result=replace(done.result, details=details))
    folder = RunFolder(path, again, force=False)
    folder.write([done], [step.name])
    assert {one.key for one in folder.replaced} == replaced
