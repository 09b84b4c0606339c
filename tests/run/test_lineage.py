"""A model's earlier runs are known by its content, wherever it lies, and decide the splits."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from shrink.base.errors import MAY_HAVE_BEEN_TRAINED_ON, StageError
from shrink.contract.codec import to_plain
from shrink.contract.job import StepJob
from shrink.contract.report import DataSet
from shrink.contract.result import HeldOut, SharedExamples, StepResult
from shrink.contract.usage import METADATA_NAME, identity, record_of, write_record
from shrink.data.config import DataConfig
from shrink.model.reference import parse_model_reference
from shrink.run.lineage import (
    LEFT_OUT,
    Lineage,
    LineOrigin,
    Link,
    SplitIdentity,
    Splits,
    chain_of,
    describe_data,
    describe_shared,
    describe_splits,
    named_code,
)
from shrink.run.store import Store
from tests.report.plain import headlines, render_report
from tests.report.toys import outcomes, with_result
from tests.run.fake_worker import FakeWorker, run, statuses


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "model.py").write_text("def build():\n    return 'model'\n")
    for value, name in enumerate(("data", "other", "third")):
        np.savez(tmp_path / f"{name}.npz", x=np.full(4, value), y=np.arange(4))
    return tmp_path / "cache"


def _recipe(root: Path, model: Any, seed: int, data: str = "data", **more: Any) -> dict[str, Any]:
    stages = more.pop("stages", [{"train": {"epochs": 1}}])
    return {
        "name": f"run-{seed}",
        "model": str(model),
        "data": {"source": "npz", "path": str(root / f"{data}.npz"), **more},
        "training": {"seed": seed},
        "stages": stages,
    }


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Return the artifact of a first run, whose splits are those of seed 7."""
    recipe = _recipe(tmp_path, f"{tmp_path / 'model.py'}:build", seed=7)
    run(recipe, tmp_path / "first", FakeWorker())
    return tmp_path / "first" / "artifacts" / "00-train.keras"


def _second(root: Path, recipe: dict[str, Any]) -> list[tuple[int, list[str]]]:
    """Run a recipe; return the seed of the splits that each job got, and the earlier splits."""
    worker = FakeWorker()
    run(recipe, root / "second", worker)
    read = [[path.read_text() for path in job.earlier_splits] for job in worker.jobs]
    return [(job.split_seed, earlier) for job, earlier in zip(worker.jobs, read, strict=True)]


@pytest.mark.parametrize("place", ["run folder", "file", "copy", "moved run", "cleared store"])
def test_run_divides_the_same_data_as_the_run_that_made_the_model(
    tmp_path: Path, first: Path, cache: Path, place: str
) -> None:
    model = {"run folder": first.parent.parent, "file": first}.get(place, tmp_path / "copy.keras")
    if place == "copy":
        shutil.copy(first, model)
    if place == "moved run":
        model = tmp_path / "moved"
        first.parent.parent.rename(model)
    if place == "cleared store":
        model = first
        shutil.rmtree(cache)
    assert _second(tmp_path, _recipe(tmp_path, model, seed=3)) == [(7, []), (7, [])]


def test_failed_run_keeps_the_lineage_of_the_finished_one(tmp_path: Path, first: Path) -> None:
    folder = first.parent.parent
    kept = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    def failing(job: StepJob, work: Path, on_event: Any) -> dict[str, Any]:
        raise StageError("no")

    recipe = _recipe(tmp_path, f"{tmp_path / 'model.py'}:build", seed=8) | {"name": "run-7"}
    with pytest.raises(StageError):
        run(recipe, folder, failing)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == kept
    beside = folder.with_name(f"{folder.name}.failed")
    assert json.loads((beside / METADATA_NAME).read_text())["artifacts"] == []


def test_folder_keeps_splits_that_are_in_no_store(tmp_path: Path, first: Path, cache: Path) -> None:
    shutil.rmtree(cache)
    run(_recipe(tmp_path, first, 3, "other"), tmp_path / "second", FakeWorker())
    held = {p.read_text() for p in (tmp_path / "second" / "splits").iterdir()}
    assert held == {f"{tmp_path / 'data.npz'} 7", f"{tmp_path / 'other.npz'} 3"}


def test_run_knows_a_model_in_another_form(tmp_path: Path, first: Path, cache: Path) -> None:
    (tmp_path / "exported.keras").write_text("the same model, exported")
    write_record(tmp_path / "exported.keras", record_of(first))
    shutil.rmtree(cache)
    shutil.rmtree(first.parent.parent)
    assert _second(tmp_path, _recipe(tmp_path, tmp_path / "exported.keras", 3)) == [(7, [])] * 2


def test_record_beside_a_model_says_more_than_a_run_without_it(
    tmp_path: Path, first: Path, cache: Path
) -> None:
    (entry,) = (cache / "lineages").iterdir()
    content = json.loads(entry.read_text())
    content["artifacts"][0]["lineage"] = Lineage(outside=True).to_dict()
    entry.write_text(json.dumps(content))
    assert _second(tmp_path, _recipe(tmp_path, first, 3, stages=[], test_split=1)) == [(7, [])]


@pytest.mark.parametrize("key", ["fingerprint", "validation_split", "test_split"])
def test_run_takes_a_link_that_lacks_a_key_for_other_data(
    tmp_path: Path, first: Path, key: str
) -> None:
    (entry,) = (tmp_path / "cache" / "lineages").iterdir()
    content = json.loads(entry.read_text())
    del content["artifacts"][0]["lineage"]["links"][0]["data"][key]
    entry.write_text(json.dumps(content))
    measured = _recipe(tmp_path, first, 3, stages=[], test_split=1)
    assert _second(tmp_path, measured) == [(3, [f"{tmp_path / 'data.npz'} 7"])]


@pytest.mark.parametrize("change", [{"data": "other"}, {"test_split": 0.3}, {"target": "input"}])
def test_run_on_other_examples_leaves_out_what_was_trained_on(
    tmp_path: Path, first: Path, change: dict[str, Any]
) -> None:
    seed = 3 if "data" in change else 7
    kept = [f"{tmp_path / 'data.npz'} 7"]
    for job in _second(tmp_path, _recipe(tmp_path, first, seed=3, **change)):
        assert job == (seed, kept)


def test_run_knows_the_whole_chain(tmp_path: Path, first: Path) -> None:
    run(_recipe(tmp_path, first, 3, "other"), tmp_path / "middle", FakeWorker())
    other, data = f"{tmp_path / 'other.npz'} 3", f"{tmp_path / 'data.npz'} 7"
    middle = tmp_path / "middle"
    assert _second(tmp_path, _recipe(tmp_path, middle, 5, "data"))[0] == (7, [other])
    assert _second(tmp_path, _recipe(tmp_path, middle, 5, "other"))[0] == (3, [data])
    seed, earlier = _second(tmp_path, _recipe(tmp_path, middle, 5, "third"))[0]
    assert (seed, sorted(earlier)) == (5, sorted([other, data]))


def test_run_counts_what_a_teacher_was_trained_on(
    tmp_path: Path, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The fake worker wrote no model that a check before training could load.
    monkeypatch.setattr("shrink.run.runner.run_worker", lambda *_: {})
    (tmp_path / "student.h5").write_bytes(b"student")
    stage = {"distill": {"teacher": str(first), "student": "baseline", "epochs": 1}}
    recipe = _recipe(tmp_path, tmp_path / "student.h5", 3, "other", stages=[stage])
    assert {str(job[1]) for job in _second(tmp_path, recipe)} == {f"['{tmp_path / 'data.npz'} 7']"}


def test_run_computes_anew_when_other_examples_are_left_out(tmp_path: Path, first: Path) -> None:
    """The same model file, once of unknown making and once of a run, is not the same step."""
    shutil.copy(first, tmp_path / "copy.keras")
    recipe = _recipe(tmp_path, tmp_path / "copy.keras", 3, "other")
    run(recipe, tmp_path / "second", FakeWorker())
    (tmp_path / "cache" / "lineages").rename(tmp_path / "gone")
    report = run(recipe, tmp_path / "second", FakeWorker())
    assert statuses(report) == ["done", "done"]


@pytest.mark.parametrize(("given", "codes"), [(False, [MAY_HAVE_BEEN_TRAINED_ON]), (True, [])])
def test_run_warns_where_a_model_came_trained_and_the_test_split_was_drawn(
    tmp_path: Path, given: bool, codes: list[str]
) -> None:
    (tmp_path / "foreign.h5").write_bytes(b"weights")
    recipe = _recipe(tmp_path, tmp_path / "foreign.h5", 0)
    for _ in range(2):  # what a stage from the store told comes with it
        told = {"splits": {"test_given": given, "test": 100}}
        report = run(recipe, tmp_path / "out", FakeWorker(result=told))
        assert [warning["code"] for warning in report["warnings"]] == codes


def test_run_still_warns_after_a_foreign_model_went_through_a_run(tmp_path: Path) -> None:
    (tmp_path / "foreign.h5").write_bytes(b"weights")
    worker = FakeWorker(result={"splits": {"test_given": False, "test": 100}})
    run(_recipe(tmp_path, tmp_path / "foreign.h5", 0), tmp_path / "a", worker)
    report = run(_recipe(tmp_path, tmp_path / "a", 0), tmp_path / "b", worker)
    assert [w["code"] for w in report["warnings"]] == [MAY_HAVE_BEEN_TRAINED_ON]


def test_run_warns_after_a_run_whose_examples_could_not_all_be_read(tmp_path: Path) -> None:
    worker = FakeWorker(unreadable=True)
    run(_recipe(tmp_path, f"{tmp_path / 'model.py'}:build", 7), tmp_path / "first", worker)
    worker = FakeWorker(result={"splits": {"test_given": False, "test": 100}})
    report = run(_recipe(tmp_path, tmp_path / "first", 3, "other"), tmp_path / "second", worker)
    assert [w["code"] for w in report["warnings"]] == [MAY_HAVE_BEEN_TRAINED_ON]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "links": [1]}'])
def test_run_takes_a_damaged_lineage_for_none(tmp_path: Path, first: Path, text: str) -> None:
    for entry in (tmp_path / "cache" / "lineages").iterdir():
        entry.write_text(text)
    (first.parent / "metadata.json").write_text(text)
    worker = FakeWorker(result={"splits": {"test_given": False, "test": 100}})
    report = run(_recipe(tmp_path, first, 3), tmp_path / "second", worker)
    assert [w["code"] for w in report["warnings"]] == [MAY_HAVE_BEEN_TRAINED_ON]


def _measured(accuracy: float, size: int) -> dict[str, Any]:
    metrics = {"metrics": {"accuracy": accuracy}, "examples": 4}
    return {"size": {"tflite_bytes": size}, **metrics}


def test_a_copy_of_the_first_baseline_goes_on_from_nothing(tmp_path: Path) -> None:
    copies = [tmp_path / f"{year}.keras" for year in (1990, 2020)]
    for path in copies:  # saved at another time, so that the bytes differ
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("config.json", "model.weights.h5"):
                archive.writestr(zipfile.ZipInfo(name, (int(path.stem), 1, 1, 0, 0, 0)), "{}")
    reference = parse_model_reference(str(copies[1]), tmp_path)
    inputs = {"model": SimpleNamespace(reference=reference)}
    plan: Any = SimpleNamespace(baseline=SimpleNamespace(inputs=inputs))
    origin = LineOrigin(artifact=identity(copies[0]))
    splits, store = Splits(0, lineage=Lineage(origin=origin)), Store(tmp_path, print)
    assert chain_of(plan, splits, DataSet(), store) is None


def test_report_compares_with_the_baseline_of_the_first_run(tmp_path: Path) -> None:
    (tmp_path / "foreign.h5").write_bytes(b"weights")
    runs: list[tuple[Path, str, list[list[float]]]] = [
        (tmp_path / "foreign.h5", "data", [[1, 1, 1, 0], [1, 1, 0, 0]]),
        (tmp_path / "0", "data", [[1, 1, 0, 0], [1, 0, 0, 0]]),
        (tmp_path / "1", "other", [[1, 0, 0, 0], [0, 0, 0, 0]]),
    ]
    reports = []
    for number, (model, data, scores) in enumerate(runs):
        worker = FakeWorker(scores=[{"accuracy": one} for one in scores])
        worker.results = [
            _measured(sum(one) / 4, 1000 // (2 * number + place))
            for place, one in enumerate(scores, start=1)
        ]
        recipe = _recipe(tmp_path, model, 0, data)
        recipe["name"] = f"run-{number}"
        reports.append(run(recipe, tmp_path / str(number), worker))
    assert reports[0]["chain"] is None
    for report in reports[1:]:
        origin = report["chain"]["origin"]
        assert (origin["run"], origin["stage"]) == ("run-0", "baseline")
        assert origin["size"]["tflite_bytes"] == 1000
    same, other = (report["stages"][-1]["delta_origin"] for report in reports[1:])
    assert same["tflite_bytes"] == {"value": -750, "ratio": 0.25}
    assert same["accuracy"]["value"] == -0.5
    assert same["accuracy"]["low"] <= -0.5 <= same["accuracy"]["high"]
    assert other["accuracy"] == {"value": -0.75, "low": None, "high": None}
    assert [r["chain"]["same_examples"] for r in reports[1:]] == [True, False]
    (one,), (unlike,) = (headlines(report) for report in reports[1:])
    since = "Since baseline of run-0: 1.00 KB became 250 B, accuracy changed by -50.00 points"
    low, high = (f"{100 * same['accuracy'][end]:+.2f}" for end in ("low", "high"))
    assert f"{since} (95 % interval of the difference {low} to {high})" in one.sentence
    assert one.sentence.endswith(
        "no proven change on these test examples." if high[0] == "+" else "a proven loss."
    )
    assert unlike.sentence.endswith("accuracy is not comparable: the test examples differ.")
    stream = io.StringIO()
    render_report(reports[1], Console(file=stream, width=120))
    assert since in stream.getvalue()


LINK = Link("first", {"fingerprint": "f"}, 7, "s")


@pytest.mark.parametrize(
    ("splits", "told", "code", "note"),
    [
        (Splits(0), {}, None, None),
        (Splits(0, lineage=Lineage((LINK,)), same=True), {}, None, "did not train on it"),
        (Splits(0, lineage=Lineage(outside=True)), {}, MAY_HAVE_BEEN_TRAINED_ON, None),
        (Splits(0, lineage=Lineage(outside=True)), {"test_given": True}, None, "does not know"),
        (Splits(0, ("s",), {}, Lineage((LINK,))), {"comparable": True, "trained_on": 9},
         MAY_HAVE_BEEN_TRAINED_ON, None),
        (Splits(0, ("s",), {}, Lineage((LINK,))), {"comparable": False, "trained_on": 0},
         MAY_HAVE_BEEN_TRAINED_ON, None),
        (Splits(0, ("s",), {}, Lineage((LINK,))),
         {"comparable": True, "trained_on": 9, "test_given": True}, None, "byte for byte"),
        (Splits(0, ("s",), {}, Lineage((LINK,))),
         {"left_out": {"test": 5}, "comparable": True, "test": 20}, LEFT_OUT, None),
    ],
)  # fmt: skip
def test_describe_splits_says_what_is_known(
    splits: Splits, told: dict[str, Any], code: str | None, note: str | None
) -> None:
    warning, said = describe_splits(splits, HeldOut(**told))
    assert (warning.code if warning else None) == code
    assert (note or "") in (said or "")
    assert bool(said) == bool(note)


def test_lineage_is_read_as_it_was_written() -> None:
    tested_on = SplitIdentity({"fingerprint": "f"}, 3, ("a" * 64,))
    origin = LineOrigin(run="first", artifact="b" * 64, tested_on=tested_on, size={"macs": 5})
    one = Lineage((LINK,), True, origin)
    assert Lineage.of(json.loads(json.dumps(one.to_dict()))) == one


def test_lineage_keeps_the_layout_that_earlier_versions_wrote() -> None:
    groups = {"size": {"macs": 5}, "memory": {"arena_bytes": None}, "metrics": {"loss": 0.5}}
    origin = {
        **{"run": "first", "stage": "baseline", "artifact": "b" * 64, "scores": "c.json"},
        "tested_on": {"data": {"fingerprint": "f"}, "seed": 3, "earlier": ["a" * 64]},
        **{**groups, "latency": {"threads": 1}, "examples": 360},
    }
    link = {"run": "first", "data": {"fingerprint": "f"}, "seed": 3, "splits": "d" * 64}
    written = {"version": 1, "links": [link], "outside": False, "origin": origin}
    lineage = Lineage.of(written)
    assert lineage is not None
    assert lineage.to_dict() == written
    assert Lineage.of({**written, "origin": {**origin, "size": "large"}}) is None


def test_named_code_is_what_a_recipe_here_named_for_the_artifact(tmp_path: Path) -> None:
    (tmp_path / "layers.py").touch()
    (tmp_path / "data.py").write_text("def load():\n    return 1\n")
    recipe = _recipe(tmp_path, f"{tmp_path / 'model.py'}:build", seed=7)
    recipe["data"] = {"source": "python", "path": f"{tmp_path / 'data.py'}:load"}
    recipe["custom_objects"] = str(tmp_path / "layers.py")
    run(recipe, tmp_path / "first", FakeWorker())
    artifact = tmp_path / "first" / "artifacts" / "00-train.keras"
    assert named_code(artifact) == {f"{tmp_path / 'data.py'}:load", recipe["custom_objects"]}
    artifact.write_text("another model")
    assert named_code(artifact) == set()


def test_run_takes_changed_splits_of_a_run_folder_for_unknown(
    tmp_path: Path, first: Path, cache: Path
) -> None:
    shutil.rmtree(cache)
    for path in (first.parent.parent / "splits").iterdir():
        path.write_text("of other examples")
    worker = FakeWorker(result={"splits": {"test_given": False, "test": 100}})
    report = run(_recipe(tmp_path, first, 3, "other"), tmp_path / "second", worker)
    assert [w["code"] for w in report["warnings"]] == [MAY_HAVE_BEEN_TRAINED_ON]


COUNTS = {"examples": {"train": 90, "validation": 10, "test": 20}, "classes": ["cat", "dog"]}


def test_describe_data_tells_what_the_first_stage_that_ran_counted() -> None:
    train, _, _ = outcomes()
    config = DataConfig(source="npz", path="/home/me/secret/pics.npz")
    told = describe_data(config, "ab", with_result(train, data=COUNTS).result)
    assert to_plain(told) == {"source": "npz", "path": "pics.npz", "fingerprint": "ab", **COUNTS}
    assert describe_data(config, "ab", StepResult()).examples is None


def test_examples_in_two_splits_are_a_warning_each_or_a_note_where_they_are_left_out() -> None:
    shared = (
        SharedExamples(split="test", other="train", count=3, total=10, example="a.png = b.png"),
        SharedExamples(split="validation", other="train", count=1, total=6, example="c = d"),
    )
    warnings, note = describe_shared(HeldOut(test=10, shared=shared))
    assert note is None
    assert [warning.code for warning in warnings] == ["split-overlap", "split-overlap"]
    assert warnings[0].message == (
        "3 of 10 examples of the test split are in the train split too, such as a.png = b.png: "
        "test metrics are optimistic"
    )
    assert "data.overlap: leave_out" in str(warnings[0].hint)
    none, said = describe_shared(HeldOut(test=7, shared=shared, shared_left_out=True))
    assert (none, "3 of test that are also in train" in str(said)) == ([], True)
