"""`shrink validate` and `shrink schema`."""

from __future__ import annotations

import typer

from shrink.cli.examples import epilog
from shrink.cli.options import JsonFlag, QuietFlag, RecipeArgument, SetOption


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("validate", epilog=epilog("validate"))(validate)
    app.command("schema")(schema)


def validate(
    recipe: RecipeArgument,
    set_: SetOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Check a recipe without running it."""
    from shrink.bundle import find_recipe
    from shrink.console import Console
    from shrink.errors import InputError
    from shrink.recipe.load import load_recipe
    from shrink.recipe.plan import build_plan

    console = Console(as_json=json_, quiet=quiet)
    loaded = load_recipe(find_recipe(recipe), set_ or ())
    warnings: list[str] = []
    names: list[str] = []
    try:
        plan = build_plan(loaded)
        names = [step.name for step in plan.steps]
        if plan.data_path is not None and not plan.data_path.exists():
            warnings.append(f"{plan.data_path}: the data is not here")
    except InputError as error:  # the recipe itself is right; its model may come later
        warnings.append(str(error))
    for warning in warnings:
        console.warn(warning)
    if json_:
        document = {"valid": True, "recipe": loaded.recipe.name, "stages": names}
        console.document({**document, "warnings": warnings})
    elif not quiet:
        console.print(f"{recipe}: valid ({' -> '.join(names) or loaded.recipe.name})")


def schema(json_: JsonFlag = True, quiet: QuietFlag = False) -> None:
    """Print the JSON Schema of a recipe, for editors."""
    from shrink.bundle import bundled_schema
    from shrink.console import Console

    Console(as_json=json_, quiet=quiet).document(bundled_schema())
