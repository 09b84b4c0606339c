from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrink.model.reference import ModelReference, parse_model_reference
from shrink.recipe.data_reference import NamedData
from shrink.recipe.first import first_recipe
from shrink.recipe.load import load_recipe
from shrink.recipe.plan import build_plan

DIGITS = NamedData({"source": "digits"}, {})


def found(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {"parameters": 1_000, "float_bytes": 400_000, "groups": 3}
    quantized = {"scheme": "static_wi8_ai8", "quantized_bytes": 100_000}
    known |= {**quantized, "quantized_arena_bytes": 64_000}
    task = {"metric": "accuracy", "loss": "sparse_categorical_crossentropy", "classes": 10}
    splits = {"train": 1_200, "validation": 120, "test": 360}
    return {**known, **task, **splits, **changes}


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


def test_first_recipe_stays_one_with_its_comments_taken_away(tmp_path: Path) -> None:
    text = first_recipe("net", model(tmp_path, "net.py:build"), DIGITS, found(), tmp_path)
    path = tmp_path / "recipe.yaml"
    path.write_text(text.replace("  # - ", "  - "), encoding="utf-8")
    path.write_text(path.read_text().replace("  - quantize: {scheme: static_wi8_ai8}\n", ""))
    plan = build_plan(load_recipe(path))
    assert [step.name for step in plan.steps] == ["train", "prune", "quantize"]


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


def test_first_recipe_keeps_what_is_said_of_the_task(tmp_path: Path) -> None:
    named = NamedData(DIGITS.data, {"loss": "mean_absolute_error"})
    path = tmp_path / "recipe.yaml"
    text = first_recipe("net", model(tmp_path, "net.keras"), named, found(), tmp_path)
    path.write_text(text, encoding="utf-8")
    assert load_recipe(path).recipe.task.loss == "mean_absolute_error"
