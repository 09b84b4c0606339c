"""The recipe that a verb stands for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import ModelError, RecipeError
from shrink.recipe.single import Sections, portable, single_recipe, student_value
from tests.report.toys import report_naming


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "artifacts").mkdir(parents=True)
    (folder / "artifacts" / "00-train.keras").write_bytes(b"x")
    digest = hashlib.sha256(b"x").hexdigest()
    built = report_naming({"artifact": "artifacts/00-train.keras", "sha256": digest})
    (folder / "report.json").write_text(json.dumps(built), encoding="utf-8")
    (folder / "recipe.resolved.yaml").write_text(
        "data: {source: digits, test_split: 0.3}\ntraining: {seed: 5}\n", encoding="utf-8"
    )
    return folder


def test_single_recipe_takes_data_and_seed_of_a_run_folder(run: Path) -> None:
    recipe = single_recipe("prune", "run", None, [{"prune": {}}], Sections(), run.parent)
    assert recipe == {
        "name": "prune-run",
        "model": str(run / "artifacts" / "00-train.keras"),
        "data": {"source": "digits", "test_split": 0.3},
        "training": {"seed": 5},
        "stages": [{"prune": {}}],
    }


def test_portable_recipe_names_what_is_near_as_seen_from_its_folder(run: Path) -> None:
    (run.parent / "net.py").touch()
    (run.parent / "x.npz").touch()
    recipe = single_recipe(
        "train", "net.py:build", "x.npz", [{"train": {}}], Sections(), run.parent
    )
    assert recipe["model"] == f"{run.parent / 'net.py'}:build"
    found = portable({**recipe, "custom_objects": "/usr/lib/far.py"}, run.parent)
    assert (found["model"], found["data"]["path"]) == ("net.py:build", "x.npz")
    assert found["custom_objects"] == "/usr/lib/far.py"


def test_single_recipe_lets_flags_win(run: Path) -> None:
    recipe = single_recipe("train", "run", "digits", [], Sections(training={"seed": 1}), run.parent)
    assert recipe["data"] == {"source": "digits"}
    assert recipe["training"] == {"seed": 1}


def test_single_recipe_asks_for_data_where_a_model_brings_none(run: Path) -> None:
    (run.parent / "bare.keras").touch()
    with pytest.raises(RecipeError, match="no data was named"):
        single_recipe("prune", "bare.keras", None, [], Sections(), run.parent)


def test_single_recipe_takes_the_data_of_the_run_that_a_file_is_in(run: Path) -> None:
    artifact = "run/artifacts/00-train.keras"
    recipe = single_recipe("prune", artifact, None, [{"prune": {}}], Sections(), run.parent)
    assert recipe["data"] == {"source": "digits", "test_split": 0.3}


def test_single_recipe_takes_nothing_of_a_run_for_another_file_in_its_folder(run: Path) -> None:
    (run / "artifacts" / "00-train.keras").write_bytes(b"somebody else's")
    with pytest.raises(RecipeError, match="no data was named"):
        single_recipe("evaluate", "run/artifacts/00-train.keras", None, [], Sections(), run.parent)
    with pytest.raises(ModelError, match="not the file that the run's report speaks of"):
        single_recipe("evaluate", "run", "digits", [], Sections(), run.parent)


@pytest.mark.parametrize(
    ("resolved", "flag", "named"),
    [
        ("data: {source: digits}\ncustom_objects: /a/b.py\n", "--custom-objects", "/a/b.py"),
        ("data: {source: python, path: '/a/b.py:load'}\n", "--data", "/a/b.py:load"),
    ],
)
def test_single_recipe_runs_no_code_that_only_a_run_folder_names(
    run: Path, resolved: str, flag: str, named: str
) -> None:
    (run / "recipe.resolved.yaml").write_text(resolved, encoding="utf-8")
    with pytest.raises(RecipeError, match=r"which would run: /a/b\.py") as caught:
        single_recipe("evaluate", "run", None, [], Sections(), run.parent)
    assert f"{flag} {named}" in str(caught.value.hint)
    recipe = single_recipe(
        "evaluate", "run", None, [], Sections(), run.parent, named_code=lambda artifact: {named}
    )
    assert named in (recipe.get("custom_objects"), recipe["data"].get("path"))


def test_student_value_reads_scales_and_models(run: Path) -> None:
    assert student_value("width=0.5,depth=2", run) == {"width": 0.5, "depth": 2}
    assert str(student_value("artifacts/00-train.keras", run)).endswith("00-train.keras")
    with pytest.raises(RecipeError, match="width=F"):
        student_value("width=0.5,half", run)


@pytest.mark.parametrize(
    "stage",
    [
        {"quantize": {"scheme": "float16"}},
        {"quantize": {"scheme": "dynamic_wi8_afp32"}},
        {"prune": {"epochs": 0}},
        {"quantize": {"scheme": "int8"}},  # refused with its place when the recipe is read
    ],
    ids=str,
)
def test_single_recipe_does_without_data_what_needs_no_examples(
    run: Path, stage: dict[str, Any]
) -> None:
    (run.parent / "bare.keras").touch()
    for named in (None, "none"):
        recipe = single_recipe("v", "bare.keras", named, [stage], Sections(), run.parent)
        assert recipe["data"] == {"source": "none"}


def test_single_recipe_names_the_schemes_that_need_no_data(run: Path) -> None:
    (run.parent / "bare.keras").touch()
    with pytest.raises(RecipeError, match="it calibrates static_wi8_ai8 on them") as caught:
        single_recipe("quantize", "bare.keras", None, [{"quantize": {}}], Sections(), run.parent)
    assert caught.value.subject == "--data"
    assert "float32, float16, dynamic_wi8_afp32, weight_only_wi8_afp32" in str(caught.value.hint)


def test_single_recipe_refuses_flags_about_examples_without_data(run: Path) -> None:
    (run.parent / "bare.keras").touch()
    stages, sections = [{"quantize": {"scheme": "float16"}}], Sections(data={"image_size": [8, 8]})
    with pytest.raises(RecipeError, match="image_size is about examples"):
        single_recipe("quantize", "bare.keras", None, stages, sections, run.parent)


def test_single_recipe_takes_no_data_from_a_run_that_had_none(run: Path) -> None:
    (run / "recipe.resolved.yaml").write_text("data: {source: none}\n", encoding="utf-8")
    with pytest.raises(RecipeError, match="no data was named"):
        single_recipe("train", "run", None, [{"train": {}}], Sections(), run.parent)
