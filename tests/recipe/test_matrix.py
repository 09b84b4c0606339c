"""Sweeps: which combinations `--set`, `matrix` and `repeat` stand for, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.base.errors import RecipeError
from shrink.recipe.matrix import Combination, Variants, load_variants
from shrink.recipe.overrides import Override

TEXT = """\
name: small
model: model.keras
data: {source: digits}
stages:
  - train: {epochs: 3}
  - prune: {sparsity: 0.5, epochs: 0}
"""


def variants(folder: Path, matrix: str = "", *texts: str) -> Variants:
    path = folder / "small.yaml"
    path.write_text(TEXT + matrix, encoding="utf-8")
    return load_variants(path, texts)


def settings(found: Variants) -> list[dict[str, str]]:
    return [one.combination.texts for one in found.each]


def refusal(folder: Path, matrix: str = "", *texts: str) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        variants(folder, matrix, *texts)
    return caught.value


def test_load_variants_has_one_recipe_without_a_sweep(tmp_path: Path) -> None:
    found = variants(tmp_path, "", "prune.sparsity=0.7", "prune.exclude=[a,b]")
    assert (found.is_sweep, len(found.each)) == (False, 1)
    assert found.each[0].loaded.recipe.stages[1].model_dump()["exclude"] == ("a", "b")


def test_load_variants_makes_every_combination_the_last_key_fastest(tmp_path: Path) -> None:
    matrix = "matrix: {prune.sparsity: [0.3, 0.50], training.optimizer.learning_rate: [1e-3, 1E-2]}"
    found = variants(tmp_path, matrix)
    rate = "training.optimizer.learning_rate"
    assert settings(found) == [
        {"prune.sparsity": "0.3", rate: "0.001"},
        {"prune.sparsity": "0.3", rate: "0.01"},
        {"prune.sparsity": "0.5", rate: "0.001"},
        {"prune.sparsity": "0.5", rate: "0.01"},
    ]
    rates = [one.loaded.recipe.training.optimizer.learning_rate for one in found.each]
    assert rates == [0.001, 0.01, 0.001, 0.01]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("prune.exclude=[a,b],[c]", [("a", "b"), ("c",)]),
        ('prune.exclude=["a,b", c], [d]', [("a,b", "c"), ("d",)]),
        ("prune.exclude=[a,b]", [("a", "b")]),
    ],
)
def test_load_variants_keeps_a_value_in_brackets_whole(
    tmp_path: Path, text: str, read: list[tuple[str, ...]]
) -> None:
    found = variants(tmp_path, "", text)
    stages = [one.loaded.recipe.stages[1].model_dump() for one in found.each]
    assert [stage["exclude"] for stage in stages] == read


def test_load_variants_names_folders_by_what_is_set(tmp_path: Path) -> None:
    found = variants(tmp_path, "", "prune.sparsity=0.3,0.5", "prune.exclude=[a,b],[a;b]")
    names = [one.combination.folder for one in found.each]
    assert names[0].startswith("prune.sparsity=0.3,prune.exclude=a-b-")
    assert len(set(names)) == 4
    assert not any(set(name) & set("/\\ \"'[]{}*?:;|<>&$`") for name in names)
    title = found.each[0].combination.title
    assert title == "prune.sparsity = 0.3, prune.exclude = [a,b]"


def test_a_flag_takes_the_place_of_a_key_of_the_matrix(tmp_path: Path) -> None:
    matrix = "matrix: {prune.sparsity: [0.3, 0.5], training.seed: [0, 1]}"
    one = settings(variants(tmp_path, matrix, "prune.sparsity=0.9"))
    assert one == [{"prune.sparsity": "0.9", "training.seed": s} for s in "01"]
    three = settings(variants(tmp_path, matrix, "training.seed=7", "prune.sparsity=0.1,0.2,0.4"))
    assert [row["prune.sparsity"] for row in three] == ["0.1", "0.2", "0.4"]


@pytest.mark.parametrize("name", ["by/place", "tag und nacht", "ü" * 90, "../.."])
def test_a_key_is_made_fit_for_a_folder(tmp_path: Path, name: str) -> None:
    folders = set()
    for key in (name, name.replace("/", "-"), name + "x"):
        text = f"data.slices.{key}=*.png"
        override = Override(("data", "slices", key), "*.png", text, written="*.png")
        folders.add(Combination((override,)).folder)
    assert len(folders) == len({name, name.replace("/", "-"), name + "x"})
    for folder in folders:
        assert folder.startswith("data.slices.")
        (tmp_path / folder).mkdir()  # below this very folder, and no longer than a name may be
    assert {path.name for path in tmp_path.iterdir()} == folders


def test_repeat_runs_the_seeds_from_the_recipes_own_upwards(tmp_path: Path) -> None:
    found = variants(tmp_path, "repeat: 2\ntraining: {seed: 5}\n", "prune.sparsity=0.3,0.5")
    assert [row["training.seed"] for row in settings(found)] == ["5", "6", "5", "6"]
    assert [one.combination.own for one in found.each][::2] == [
        {"prune.sparsity": "0.3"},
        {"prune.sparsity": "0.5"},
    ]
    assert [one.loaded.recipe.training.seed for one in found.each] == [5, 6, 5, 6]
    assert len(variants(tmp_path, "", "repeat=3").each) == 3


@pytest.mark.parametrize(
    ("matrix", "line", "column", "words"),
    [
        ("matrix: {prun.sparsity: [0.3]}", 7, 10, ["'prun'", "did you mean prune?"]),
        ("matrix: {prune.sparsty: [0.3, 0.5]}", 7, 10, ["'sparsty'", "did you mean sparsity?"]),
        ("matrix: {prune.sparsity: [0.3, 1.5]}", 7, 32, ["sparsity", "1.5"]),
        ("matrix: {prune.sparsity: []}", 7, 10, ["an empty list"]),
        ("matrix: {prune.sparsity: [0.3, 0.30]}", 7, 32, ["is listed twice"]),
        ("matrix: {prune.sparsity: 0.3}", 7, 10, ["a list of values", "[0.3]"]),
        ("matrix: {prune: {sparsity: [0.3]}}", 7, 10, ["names a stage", "prune.KEY"]),
        ("matrix: {}", 7, 1, ["mapping of keys"]),
        ("matrix: {name: [a, b]}", 7, 10, ["name cannot be swept"]),
        ("matrix: {prune.sparsity: [0.3], exclude: [{}]}", 7, 33, ["exclude was removed", "--set"]),
        ("matrix: {include: [{prune.sparsity: 0.3}]}", 7, 10, ["include was removed", "--set"]),
        ("repeat: 0", 7, 1, ["repeat", "from 1"]),
        ("repeat: 2\nmatrix: {training.seed: [0, 1]}", 7, 1, ["training.seed", "swept already"]),
        ("repeat: 2\nmatrix: {training: [{seed: 1}, {seed: 2}]}", 8, 21, ["swept already"]),
        (
            "matrix: {training.seed: [1, 2], training: [{micro_batch_size: 8}]}",
            7,
            10,
            ["training.seed is a part of training"],
        ),
        ("matrixx: {prune.sparsity: [0.3]}", 7, 1, ["did you mean matrix?"]),
    ],
)
def test_load_variants_names_the_place_of_what_is_wrong(
    tmp_path: Path, matrix: str, line: int, column: int, words: list[str]
) -> None:
    error = refusal(tmp_path, matrix)
    assert error.position is not None
    assert (error.position.line, error.position.column) == (line, column)
    assert error.exit_code == 2
    assert all(word in str(error) for word in words), str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prune.sparsity=0.3,", ["sparsity", "0.3,"]),
        ("prune.sparsity=0.3,0.3", ["is listed twice", "[a,b]"]),
        ("prun.sparsity=0.3,0.5", ["did you mean prune?"]),
        ("prune.sparsty=0.3,0.5", ["did you mean sparsity?"]),
        ("name=a,b", ["cannot be swept"]),
        ("prune.sparsity=" + ",".join(f"0.{n}" for n in range(1000, 2001)), ["1,001 runs"]),
    ],
)
def test_load_variants_names_the_flag_that_is_wrong(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    error = refusal(tmp_path, "", text)
    assert all(word in str(error) for word in (*words, "--set prun" if "prun" in text else "name"))


def test_a_quoted_file_with_a_comma_in_its_name_is_one_value(tmp_path: Path) -> None:
    quoted = variants(tmp_path, "", 'model="x,y.keras"')
    assert (quoted.is_sweep, quoted.each[0].loaded.recipe.model) == (False, "x,y.keras")
    assert variants(tmp_path, "", "model=x.keras,y.keras").is_sweep
