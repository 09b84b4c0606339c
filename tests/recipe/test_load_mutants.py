"""Injured and misspelt recipes are planned or refused by name, and nothing else."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from shrink.base.errors import ShrinkError
from shrink.recipe.bundle import bundled_recipes, bundled_root
from shrink.recipe.load import load_recipe
from shrink.recipe.plan import build_plan
from tests.base.yaml.test_mutants import mutant

WORDS = (
    *("nan", "~", "~nobody/x", "-1", "0", "1.5", "1e400", "9" * 30, "null", "true", "[]", "{}"),
    *("[1, 2]", "{a: b}", '"\\0"', "a" * 300, ".", "/", "../..", "digits", "npz", "images"),
    *("train", "baseline", "stages", "from: train", "name: x", "path: x", "student: {depth: 2}"),
)


def reworded(source: random.Random, text: str) -> str:
    """Return `text` with one to three words replaced by others, its own among them."""
    for _ in range(source.randint(1, 3)):
        found = list(re.finditer(r"[A-Za-z0-9_./-]+", text))
        place = source.choice(found)
        word = source.choice([*WORDS, source.choice(found).group()])
        text = text[: place.start()] + word + text[place.end() :]
    return text


def plan_mutants(folder: Path, count: int, seed: int) -> tuple[int, int]:
    """Return how many mutants were planned and how many refused; anything else raises."""
    (folder / "models").symlink_to(bundled_root() / "models")
    originals = [recipe.path.read_text(encoding="utf-8") for recipe in bundled_recipes()]
    (folder / "recipes").mkdir()
    for recipe in bundled_recipes():  # some extend others
        (folder / "recipes" / recipe.path.name).symlink_to(recipe.path)
    path = folder / "recipes" / "mutant.yaml"
    source = random.Random(seed)
    planned = refused = unplaced = 0
    for _ in range(count):
        injure = source.choice([mutant, reworded])
        text = injure(source, source.choice(originals))
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            build_plan(load_recipe(path))
        except ShrinkError as error:
            refused += 1
            unplaced += error.exit_code not in (2, 3) or not (error.position or error.subject)
        else:
            planned += 1
    assert unplaced == 0
    return planned, refused


@pytest.mark.parametrize("count", [300, pytest.param(2_000, marks=pytest.mark.slow)])
def test_mutants_of_a_recipe_are_planned_or_refused(count: int, tmp_path: Path) -> None:
    planned, refused = plan_mutants(tmp_path, count, seed=count)
    assert planned > count / 30
    assert refused > count / 3
