"""The recipe that a verb stands for, and a first one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from shrink.base.errors import ModelError, RecipeError
from shrink.contract.codec import from_plain
from shrink.contract.result import FirstLook
from shrink.model.reference import ModelReference, parse_model_reference
from shrink.recipe.data_reference import NamedData
from shrink.recipe.load import load_recipe
from shrink.recipe.plan import build_plan
from shrink.recipe.single import Sections, first_recipe, portable, single_recipe, student_value
from tests.report.plain import metadata
from tests.report.toys import report_naming

DIGITS = NamedData({"source": "digits"}, {})


def found(**changes: Any) -> FirstLook:
    known: dict[str, Any] = {"parameters": 1_000, "float_bytes": 400_000, "groups": 3}
    quantized = {"scheme": "static_wi8_ai8", "quantized_bytes": 100_000}
    known |= {**quantized, "quantized_arena_bytes": 64_000}
    task = {"metric": "accuracy", "loss": "sparse_categorical_crossentropy", "classes": 10}
    splits = {"train": 1_200, "validation": 120, "test": 360}
    return from_plain(FirstLook, {**known, **task, **splits, **changes})


def model(folder: Path, name: str) -> ModelReference:
    (folder / name.partition(":")[0]).write_text("", encoding="utf-8")
    return parse_model_reference(name, folder)


@pytest.mark.parametrize(
    ("name", "changes", "stages"),
    [
        ("net.py:build", {}, ["train", "quantize"]),
        ("net.keras", {}, ["baseline", "quantize"]),
        ("net.keras", {"metric": "mean_squared_error", "classes": 0}, ["baseline", "quantize"]),
        ("net.tflite", {"groups": 0}, ["baseline", "quantize"]),
        ("net.keras", {"quantized_arena_bytes": None, "groups": 0}, ["baseline", "quantize"]),
    ],
)
def test_first_recipe_is_one_that_shrink_reads(
    tmp_path: Path, name: str, changes: dict[str, Any], stages: list[str]
) -> None:
    text = first_recipe("net", model(tmp_path, name), DIGITS, found(**changes), tmp_path)
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    plan = build_plan(load_recipe(path))
    assert [step.name for step in plan.steps] == stages
    assert plan.recipe.gates
    is_known = changes.get("quantized_arena_bytes", 1) is not None
    assert ("arena_bytes" in plan.recipe.gates) == is_known


@pytest.mark.parametrize(
    ("metric", "gate"),
    [
        ("accuracy", "accuracy_drop"),
        ("binary_accuracy", "binary_accuracy_drop"),
        ("top5_accuracy", "top5_accuracy_drop"),
        ("mean_absolute_error", "mean_absolute_error"),
        ("binary_crossentropy", "binary_crossentropy"),
    ],
)
def test_first_recipe_asks_of_no_metric_to_be_better_than_the_baseline(
    tmp_path: Path, metric: str, gate: str
) -> None:
    path = tmp_path / "recipe.yaml"
    named = model(tmp_path, "net.keras")
    text = first_recipe("net", named, DIGITS, found(metric=metric, classes=0), tmp_path)
    path.write_text(text, encoding="utf-8")
    asked = build_plan(load_recipe(path)).recipe.gates[gate]
    assert (asked.ratio or 0) > 1 or asked.limit > 0
    assert ("real targets" in text) == (metric == "mean_absolute_error")


def test_first_recipe_names_what_is_near_by_a_relative_path(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    data = NamedData({"source": "images", "path": str(tmp_path / "pictures")}, {})
    text = first_recipe("n", model(tmp_path, "net.keras"), data, found(), tmp_path / "recipes")
    assert "model: ../net.keras\n" in text
    assert "path: ../pictures\n" in text
    far = first_recipe("n", model(tmp_path, "net.keras"), data, found(), Path("/usr/share/x"))
    assert f"model: {tmp_path}/net.keras\n" in far


@pytest.mark.parametrize(
    ("size", "limit"),
    [(100_000, "110KB"), (10_000, "11KB"), (4_000, "4.4KB"), (90_000_000, "99MB")],
)
def test_first_recipe_leaves_a_tenth_above_what_was_measured(
    tmp_path: Path, size: int, limit: str
) -> None:
    told = found(quantized_bytes=size)
    text = first_recipe("net", model(tmp_path, "net.keras"), DIGITS, told, tmp_path)
    assert f"tflite_bytes: {limit}  # 400,000 as float32" in text
    scheme = "dynamic_wi8_afp32"
    text = first_recipe("net", model(tmp_path, "net.keras"), DIGITS, found(scheme=scheme), tmp_path)
    assert f"  - quantize: {{scheme: {scheme}}}" in text


@pytest.mark.parametrize(
    ("kind", "metrics", "classes", "gate", "words"),
    [
        ("masks", ("mean_iou", "pixel_accuracy"), 0, "mean_iou_drop", "a class for each pixel, of"),
        ("clips", ("balanced_accuracy",), 3, "balanced_accuracy_drop", "3 classes of sounds"),
        ("forecast", ("rmse", "mae", "r2"), 0, "rmse", "future values of a time series"),
        ("reconstruction", (), 0, "mean_squared_error", "the input itself"),
    ],
)
def test_first_recipe_states_the_metrics_of_its_kind_of_task(
    tmp_path: Path, kind: str, metrics: tuple[str, ...], classes: int, gate: str, words: str
) -> None:
    told = found(
        kind=kind,
        metrics=metrics,
        metric=metrics[0] if metrics else "mean_squared_error",
        classes=classes,
        class_names=("a", "b", "go"),
        clip_seconds=1.5,
    )
    path = tmp_path / "recipe.yaml"
    text = first_recipe("net", model(tmp_path, "net.keras"), DIGITS, told, tmp_path)
    path.write_text(text, encoding="utf-8")
    recipe = build_plan(load_recipe(path)).recipe
    assert recipe.task.metrics == (metrics or None)
    assert gate in recipe.gates
    assert words in text
    spotting = "{name: false_accepts_per_hour, miss_rate: 0.05, seconds: 1.5, class: go}"
    assert (spotting in text) == (kind == "clips")


def test_first_recipe_keeps_what_is_said_of_the_task(tmp_path: Path) -> None:
    named = NamedData(DIGITS.data, {"loss": "mean_absolute_error"})
    path = tmp_path / "recipe.yaml"
    text = first_recipe("net", model(tmp_path, "net.keras"), named, found(), tmp_path)
    path.write_text(text, encoding="utf-8")
    assert load_recipe(path).recipe.task.loss == "mean_absolute_error"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "artifacts").mkdir(parents=True)
    (folder / "artifacts" / "00-train.keras").write_bytes(b"x")
    digest = hashlib.sha256(b"x").hexdigest()
    built = report_naming({"artifact": "artifacts/00-train.keras", "sha256": digest})
    (folder / "report.json").write_text(json.dumps(built), encoding="utf-8")
    record = json.dumps(metadata(built, ""))
    (folder / "artifacts" / "metadata.json").write_text(record, encoding="utf-8")
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
    seed = Sections(training={"seed": 1})
    recipe = single_recipe("train", "run", "digits", [{"train": {}}], seed, run.parent)
    assert recipe["data"] == {"source": "digits", "test_split": 0.3}  # it is the run's own data
    assert recipe["training"] == {"seed": 1}


def test_single_recipe_tests_all_examples_where_it_only_measures(run: Path) -> None:
    recorded = single_recipe("evaluate", "run", "digits", [], Sections(), run.parent)
    assert recorded["data"] == {"source": "digits", "test_split": 1}
    resolved = run / "recipe.resolved.yaml"
    resolved.write_text("data: {source: digits, test_split: 1.0}\n", encoding="utf-8")
    cases: list[tuple[str, list[dict[str, Any]], dict[str, int]]] = [
        ("evaluate", [], {"test_split": 1}),
        ("compact", [{"compact": {}}], {"test_split": 1}),
        ("prune", [{"prune": {}}], {}),
    ]
    for verb, stages, split in cases:
        recipe = single_recipe(verb, "run", None, stages, Sections(), run.parent)
        assert recipe["data"] == {"source": "digits", **split}
    own = Sections(data={"test_split": 0.4})
    recipe = single_recipe("evaluate", "run", "digits", [], own, run.parent)
    assert recipe["data"]["test_split"] == 0.4


def test_single_recipe_takes_the_data_of_the_run_that_a_file_is_in(run: Path) -> None:
    artifact = "run/artifacts/00-train.keras"
    recipe = single_recipe("prune", artifact, None, [{"prune": {}}], Sections(), run.parent)
    assert recipe["data"] == {"source": "digits", "test_split": 0.3}


def test_single_recipe_takes_nothing_of_a_run_for_another_file_in_its_folder(run: Path) -> None:
    (run / "artifacts" / "00-train.keras").write_bytes(b"somebody else's")
    with pytest.raises(RecipeError, match="no data was named"):
        single_recipe("evaluate", "run/artifacts/00-train.keras", None, [], Sections(), run.parent)
    with pytest.raises(ModelError, match="changed after the run's report was written"):
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
        {"quantize": {"scheme": "int9"}},  # refused with its place when the recipe is read
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


def test_single_recipe_refuses_flags_about_examples_without_data(run: Path) -> None:
    (run.parent / "bare.keras").touch()
    stages, sections = [{"quantize": {"scheme": "float16"}}], Sections(data={"image_size": [8, 8]})
    with pytest.raises(RecipeError, match="image_size is about examples"):
        single_recipe("quantize", "bare.keras", None, stages, sections, run.parent)


def test_first_recipe_of_a_detector_has_its_head(tmp_path: Path) -> None:
    yolo = {"name": "yolo", "strides": [16], "anchors": [[[10.0, 12.0]]]}
    boxes = {"name": "boxes", "strides": [8]}
    for decode, words in ((yolo, "anchors:"), (boxes, "split_outputs: true")):
        look = found(
            metric="map",
            classes=0,
            kind="boxes",
            metrics=("map",),
            class_names=("a",),
            decode=decode,
        )
        text = first_recipe("net", model(tmp_path, "net.keras"), DIGITS, look, tmp_path)
        (tmp_path / "r.yaml").write_text(text)
        recipe = load_recipe(tmp_path / "r.yaml").recipe
        assert recipe.task.decode is not None
        assert recipe.task.decode.name == decode["name"]
        assert recipe.gates["map_drop"].limit == 0.02
        assert words in text
        assert "boxes of 1 classes" in text
