"""The recipes and models that come with shrink, in a checkout and in an installed wheel."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

from shrink.base.errors import RecipeError, hint_for
from shrink.base.foreign import JsonObject
from shrink.model.reference import exists

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class BundledRecipe:
    """A recipe that comes with shrink; its first comment is the summary, as one line."""

    name: str
    summary: str
    path: Path


def bundled_root() -> Path:
    """Return the folder that holds `recipes/` and `models/`."""
    installed = _PACKAGE / "bundled"
    return installed if installed.is_dir() else _PACKAGE.parent


def bundled_recipes() -> list[BundledRecipe]:
    """Return the bundled recipes by name."""
    paths = sorted((bundled_root() / "recipes").glob("*.yaml"))
    return [BundledRecipe(path.stem, _summary(path), path) for path in paths]


def bundled_schema() -> JsonObject:
    """Return the JSON Schema of a recipe, as a test keeps it equal to what the reader takes."""
    text = (bundled_root() / "recipes" / "recipe.schema.json").read_text(encoding="utf-8")
    schema: JsonObject = json.loads(text)
    return schema


def find_recipe(name: str) -> Path:
    """Return the path of a recipe given as a file, as `-` for standard input, or by a bundled name.

    Raises:
        RecipeError: there is neither.
    """
    path = Path(name)
    if name == "-" or path.suffix in (".yaml", ".yml") or exists(path) or "/" in name:
        return path
    names = {recipe.name: recipe.path for recipe in bundled_recipes()}
    if name in names:
        return names[name]
    raise RecipeError(
        f"no file and no bundled recipe is called {name!r}", hint=hint_for(name, names)
    )


def _summary(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    rest = itertools.dropwhile(lambda line: "$schema" in line, lines)
    comment = itertools.takewhile(lambda line: line.startswith("# "), rest)
    return " ".join(line[1:].strip() for line in comment)
