"""`shrink validate` and `shrink schema`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from shrink.cli.examples import epilog
from shrink.cli.options import AlwaysJsonFlag, JsonFlag, QuietFlag, RecipesArgument, SetOption

if TYPE_CHECKING:
    from shrink.base.errors import RecipeError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("validate", epilog=epilog("validate"))(validate)
    app.command("schema")(schema)


@dataclass(frozen=True)
class _Valid:
    """A recipe that can be run: its name, its stages in order, and what is not there yet."""

    name: str
    stages: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "valid": True,
            "recipe": self.name,
            "stages": list(self.stages),
            "warnings": list(self.warnings),
        }


def validate(
    recipes: RecipesArgument,
    set_: SetOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Check recipes without running them; every one is looked at, whatever the others hold."""
    from shrink.base.console import Console
    from shrink.base.errors import RecipeError, together

    console = Console(as_json=json_, quiet=quiet)
    checked: list[_Valid] = []
    problems: list[RecipeError] = []
    for recipe in recipes:
        try:
            found = _check(recipe, set_ or [])
        except RecipeError as error:
            problems.append(error)
            continue
        checked.append(found)
        for warning in found.warnings:
            console.warn(warning)
        if not json_ and not quiet:
            stages = " -> ".join(found.stages) or found.name
            console.print(f"{recipe}: valid ({stages})")
    if problems:
        raise together(problems)
    if json_:
        documents = [found.to_dict() for found in checked]
        # One recipe keeps the document that it has always had.
        console.document(documents[0] if len(recipes) == 1 else {"recipes": documents})


def _check(recipe: str, overrides: list[str]) -> _Valid:
    """Return what a recipe holds.

    Raises:
        RecipeError: the recipe is wrong; where its model or data is missing is only a warning.
    """
    from shrink.base.errors import InputError
    from shrink.recipe.bundle import find_recipe
    from shrink.recipe.load import load_recipe
    from shrink.recipe.plan import build_plan

    loaded = load_recipe(find_recipe(recipe), overrides)
    try:
        plan = build_plan(loaded)
    except InputError as error:  # the recipe itself is right; its model may come later
        return _Valid(loaded.recipe.name, (), (str(error),))
    missing = plan.data_path is not None and not plan.data_path.exists()
    warnings = (f"{plan.data_path}: the data is not here",) if missing else ()
    return _Valid(loaded.recipe.name, tuple(step.name for step in plan.steps), warnings)


def schema(json_: AlwaysJsonFlag = True, quiet: QuietFlag = False) -> None:
    """Print the JSON Schema of a recipe, for editors."""
    from shrink.base.console import Console
    from shrink.recipe.bundle import bundled_schema

    Console(as_json=json_, quiet=quiet).document(bundled_schema())
