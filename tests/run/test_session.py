"""`--output x.tflite` is one file; run folders of different things do not share a name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shrink.base.console import Console
from shrink.base.errors import RecipeError
from shrink.recipe.load import recipe_from_mapping
from shrink.recipe.plan import Plan, build_plan
from shrink.recipe.resolution import resolved_recipe_text
from shrink.recipe.single import Sections, single_recipe
from shrink.run.options import RunOptions
from shrink.run.session import free_name, only_artifact, perform
from tests.cli.shell import shrink
from tests.cli.toy import write_toy


def plan_of(folder: Path, model: str, data: str = "toy.npz", **settings: object) -> Plan:
    """Return the plan of `shrink quantize MODEL --data DATA`."""
    stages = [{"quantize": dict(settings)}]
    return build_plan(
        recipe_from_mapping(
            single_recipe("quantize", model, data, stages, Sections(), folder), "quantize"
        )
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two models of one name, and two data sets."""
    write_toy(tmp_path)
    for name in ("m.keras", "m.h5", "other/m.keras"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "more.npz").write_bytes((tmp_path / "toy.npz").read_bytes())
    return tmp_path


def run(plan: Plan, runs: Path, name: str) -> None:
    """Leave behind what a finished run is known by."""
    (runs / name).mkdir(parents=True)
    report = {"stages": [{"artifact": "a.keras"}, {"artifact": "b.tflite"}]}
    (runs / name / "report.json").write_text(json.dumps(report))
    (runs / name / "recipe.resolved.yaml").write_text(resolved_recipe_text(plan))


def test_free_name_is_the_short_one_for_the_same_thing_again(folder: Path) -> None:
    plan, runs = plan_of(folder, "m.keras"), folder / "runs"
    assert free_name(plan, runs) == "quantize-m"
    run(plan, runs, "quantize-m")
    assert free_name(plan_of(folder, "m.keras", calibration_samples=20), runs) == "quantize-m"


@pytest.mark.parametrize(
    ("model", "data", "scheme", "pattern"),
    [
        ("m.h5", "toy.npz", "static_wi8_ai8", "quantize-m-[0-9a-f]{6}"),
        ("other/m.keras", "toy.npz", "static_wi8_ai8", "quantize-m-[0-9a-f]{6}"),
        ("m.keras", "more.npz", "static_wi8_ai8", "quantize-m-[0-9a-f]{6}"),
        ("m.keras", "toy.npz", "float16", "quantize-m-float16"),
    ],
)
def test_free_name_tells_another_thing_apart_by_what_differs(
    folder: Path, model: str, data: str, scheme: str, pattern: str
) -> None:
    runs = folder / "runs"
    run(plan_of(folder, "m.keras"), runs, "quantize-m")
    plan = plan_of(folder, model, data, scheme=scheme)
    name = free_name(plan, runs)
    assert re.fullmatch(pattern, name)
    run(plan, runs, name)
    assert free_name(plan, runs) == name


def test_free_name_of_an_evaluation_on_other_data_is_a_name(folder: Path) -> None:
    def evaluation(data: str) -> Plan:
        value = single_recipe("evaluate", "m.keras", data, [], Sections(), folder)
        return build_plan(recipe_from_mapping(value, "shrink evaluate"))

    runs = folder / "runs"
    run(evaluation("toy.npz"), runs, "evaluate-m")
    assert re.fullmatch("evaluate-m-[0-9a-f]{6}", free_name(evaluation("more.npz"), runs))


def test_free_name_never_takes_a_third_things_folder(folder: Path) -> None:
    runs = folder / "runs"
    run(plan_of(folder, "m.keras"), runs, "quantize-m")
    run(plan_of(folder, "m.h5", scheme="float16"), runs, "quantize-m-float16")
    third = free_name(plan_of(folder, "m.keras", scheme="float16"), runs)
    assert re.fullmatch("quantize-m-[0-9a-f]{6}", third)


def test_free_name_is_that_of_a_run_that_failed(folder: Path) -> None:
    runs = folder / "runs"
    run(plan_of(folder, "m.keras"), runs, "quantize-m")
    report = runs / "quantize-m" / "report.json"
    other = plan_of(folder, "m.keras", "more.npz")
    report.write_text(json.dumps({"stages": [{"artifact": "a.keras"}, {"artifact": None}]}))
    assert free_name(other, runs) == "quantize-m"
    report.write_text(json.dumps({"stages": []}))
    assert free_name(other, runs) == "quantize-m"
    report.write_text(json.dumps({"stages": [{"artifact": "a.keras"}, {"artifact": "b.tflite"}]}))
    assert free_name(other, runs) != "quantize-m"


def test_only_artifact_refuses_branches_and_keras_models(folder: Path) -> None:
    branches = [{"quantize": {"from": "baseline", "name": n}} for n in ("a", "b")]
    for stages, words in ((branches, "2 artifacts"), ([{"train": {}}], "Keras model")):
        value = single_recipe("x", "m.keras", "toy.npz", stages, Sections(), folder)
        plan = build_plan(recipe_from_mapping(value, "x"))
        with pytest.raises(RecipeError, match=words):
            only_artifact(plan, RunOptions(Path("x.tflite")))


def test_a_run_replaces_no_file_of_the_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(folder / "store"))
    mine = folder / "mine.tflite"
    mine.write_bytes(b"mine")
    with pytest.raises(RecipeError, match="the file exists") as refused:
        perform(plan_of(folder, "m.keras"), RunOptions(mine), Console(quiet=True))
    assert refused.value.subject == str(mine)
    assert mine.read_bytes() == b"mine"


@pytest.mark.slow
def test_output_of_tflite_leaves_that_file_alone(folder: Path) -> None:
    shrink(
        "train", "toy.py:build", "--data", "toy.npz", "--epochs", "1",
        cwd=folder, store=folder / "store",
    )  # fmt: skip
    before = {p for p in folder.rglob("*") if "store" not in p.parts}
    done = shrink(
        "quantize", "runs/train-toy", "--output", "new/x.tflite",
        cwd=folder, store=folder / "store",
    )  # fmt: skip
    after = {p for p in folder.rglob("*") if "store" not in p.parts}
    record = folder / "new" / "x.tflite.json"
    assert after - before == {folder / "new", folder / "new" / "x.tflite", record}
    assert done.stdout.splitlines()[-1] == str(folder / "new" / "x.tflite")
    words = ("quantize", "runs/train-toy", "--output", "new/x.tflite")
    shrink(*words, cwd=folder, store=folder / "store")
    record.write_text("mine", encoding="utf-8")
    refused = shrink(*words, cwd=folder, store=folder / "store", expect=2)
    assert "x.tflite.json: the file exists" in refused.stderr
    assert record.read_text(encoding="utf-8") == "mine"
