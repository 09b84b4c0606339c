"""Recipes from text: positions, `extends`, `--set`, units."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.base.errors import RecipeError
from shrink.recipe.load import load_recipe
from shrink.recipe.overrides import Override
from shrink.search.candidates import Candidates

TEXT = """\
name: small
model: model.keras
data: {source: digits}
training:
  global_batch_size: 32
  optimizer: {name: sgd, learning_rate: 1e-3}
stages:
  - train: {epochs: 3}
  - quantize: {scheme: float16}
  - quantize:
      scheme: static_wi8_ai8
      from: train
gates:
  accuracy_drop: 0.02
  tflite_bytes: 40KB
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def refusal(path: Path, *overrides: str) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, overrides)
    return caught.value


def changed(path: Path, before: str, after: str) -> Path:
    assert before in TEXT
    path.write_text(TEXT.replace(before, after), encoding="utf-8")
    return path


def test_load_recipe_reads_every_section(recipe: Path) -> None:
    loaded = load_recipe(recipe).recipe
    assert loaded.training.optimizer.learning_rate == 1e-3
    assert [stage.kind for stage in loaded.stages] == ["train", "quantize", "quantize"]
    assert loaded.gates["tflite_bytes"].limit == 40_000


@pytest.mark.parametrize(
    ("before", "after", "line", "column", "words"),
    [
        ("epochs: 3", "epoch: 3", 8, 13, ["unknown key 'epoch'", "did you mean epochs?"]),
        ("global_batch_size: 32", "global_batch_size: many", 5, 3, ["global_batch_size"]),
        ("- train:", "- trian:", 8, 5, ["unknown stage 'trian'", "did you mean train?"]),
        ("name: sgd", "name: sgdd", 6, 15, ["sgd"]),
        ("tflite_bytes: 40KB", "tflite_bytes: 40kb", 15, 3, ["unit", "40KB"]),
        ("accuracy_drop: 0.02", "acuracy_drop: 0.02", 14, 3, ["accuracy_drop?"]),
        ("source: digits", "source: digts", 3, 8, ["digts", "did you mean digits?"]),
        ("accuracy_drop: 0.02", "accuracy_drop: 2KB", 14, 3, ["accuracy_drop"]),
        ("learning_rate: 1e-3", "learning_rate: -1", 6, 26, ["greater than 0"]),
        ("epochs: 3", "epochs: 0", 8, 13, ["greater than or equal to 1"]),
        ("epochs: 3", "epochs: 3.5", 8, 13, ["integer"]),
        ("epochs: 3", "epochs: true", 8, 13, ["integer"]),
        ("source: digits", "source: images", 3, 1, ["needs a path"]),
        ("scheme: float16", "scheme: float16, input_type: int8", 9, 5, ["input_type"]),
    ],
)
def test_load_recipe_names_the_place_and_the_remedy(
    recipe: Path, before: str, after: str, line: int, column: int, words: list[str]
) -> None:
    error = refusal(changed(recipe, before, after))
    assert error.position is not None
    assert (error.position.line, error.position.column) == (line, column)
    assert all(word in str(error) for word in words), str(error)


def test_load_recipe_lists_every_problem(recipe: Path) -> None:
    text = TEXT.replace("epochs: 3", "epoch: 3").replace("float16", "float61")
    recipe.write_text(text, encoding="utf-8")
    error = refusal(recipe)
    assert len(error.others) == 1


def test_load_recipe_names_missing_keys(recipe: Path) -> None:
    error = refusal(changed(recipe, "model: model.keras\n", ""))
    assert "'model' is missing" in str(error)


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("training.seed=7", lambda r: r.training.seed == 7),
        ("train.epochs=9", lambda r: r.stages[0].epochs == 9),
        ("quantize-2.scheme=float32", lambda r: r.stages[2].scheme == "float32"),
        ("training.optimizer.learning_rate=5e-4", lambda r: r.training.optimizer.name == "sgd"),
        ("gates.arena_bytes=64KiB", lambda r: r.gates["arena_bytes"].limit == 65536),
        ("name=other", lambda r: r.name == "other"),
        ("training.memory_limit=1.5 GB", lambda r: r.training.memory_limit == 1_500_000_000),
    ],
)
def test_load_recipe_applies_overrides(recipe: Path, override: str, read: object) -> None:
    assert callable(read)
    assert read(load_recipe(recipe, [override]).recipe)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.epoch=9", ["--set train.epoch=9", "did you mean epochs?"]),
        ("trian.epochs=9", ["no section or stage", "did you mean train"]),
        ("epochs", ["--set epochs", "KEY=VALUE", "for example"]),
        ("=1", ["KEY=VALUE"]),
        ("train.epochs=", ["epochs", "integer"]),
        ("train.epochs=-1", ["epochs", "greater than"]),
        ("train.epochs=[1", ["--set", "lacks a comma or its closing bracket"]),
        ("train=5", ["names a stage", "train.KEY=VALUE", "name a key"]),
        ("stages.0.epochs=1", ["by the stage's name", "train.KEY=VALUE"]),
        ("training.optimizer.learning_rate=.nan", ["learning_rate=.nan", "not a number"]),
        ("training.precision=float16", ["did you mean mixed_float16?"]),
        ("training.memory_limit=2", ["2 bytes", "1MB", "did you mean 2GB?"]),
        ("training.host_memory_limit=512", ["512 bytes", "did you mean 512MB?"]),
    ],
)
def test_load_recipe_refuses_wrong_overrides(recipe: Path, override: str, words: list[str]) -> None:
    error = refusal(recipe, override)
    assert all(word in str(error) for word in words), str(error)


def test_load_recipe_extends_another(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    child = tmp_path / "sub" / "child.yaml"
    child.write_text(
        "extends: ../small.yaml\nname: child\ntraining: {optimizer: {learning_rate: 0.5}}\n",
        encoding="utf-8",
    )
    loaded = load_recipe(child)
    assert loaded.recipe.name == "child"
    assert loaded.recipe.training.optimizer.name == "sgd"
    assert loaded.recipe.training.optimizer.learning_rate == 0.5
    assert loaded.recipe.training.global_batch_size == 32
    assert loaded.folder("model") == tmp_path
    assert loaded.folder("name") == tmp_path / "sub"


def test_load_recipe_names_the_file_of_an_inherited_problem(recipe: Path, tmp_path: Path) -> None:
    changed(recipe, "epochs: 3", "epoch: 3")
    child = tmp_path / "child.yaml"
    child.write_text("extends: small.yaml\nname: child\n", encoding="utf-8")
    error = refusal(child)
    assert error.position is not None
    assert error.position.file == str(recipe)


def test_load_recipe_refuses_extending_itself(tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text("extends: loop.yaml\n", encoding="utf-8")
    assert "extends" in str(refusal(path))


def test_a_choice_of_two_lists_shows_the_value_once_and_what_either_list_meant(
    recipe: Path,
) -> None:
    text = TEXT.replace("gates:", "  - compact: {target: ethosu55-128}\ngates:")
    recipe.write_text(text, encoding="utf-8")
    error = refusal(recipe)
    assert "'tflm'" in error.message
    assert "'ethos-u85-2048'" in error.message
    assert error.message.count("not 'ethosu55-128'") == 1
    assert error.hint == "did you mean ethos-u55-128?"
    recipe.write_text(text.replace("ethosu55-128", "tfl"), encoding="utf-8")
    assert refusal(recipe).hint == "did you mean tflm?"


def test_two_limits_of_compact_are_both_named(recipe: Path) -> None:
    both = "  - compact: {arena_bytes: 64KB, max_extra_macs: 0.1}\ngates:"
    recipe.write_text(TEXT.replace("gates:", both), encoding="utf-8")
    error = refusal(recipe)
    assert "arena_bytes" in error.message
    assert "max_extra_macs" in error.message


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("search.space=[1]", "space: must be a mapping"),
        ("search=x", "search: must be a mapping, not 'x'"),
    ],
)
def test_what_a_value_is_most_like_says_what_is_wrong_with_it(
    setting: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("name: r\nmodel: m.py:b\ndata: {source: digits}\nstages: [quantize: {}]\n")
    with pytest.raises(RecipeError, match=message):
        Candidates.of(str(path), [Override.parse(setting)])
