"""`shrink recipes`."""

from __future__ import annotations

import typer

from shrink.cli.options import JsonFlag, QuietFlag


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("recipes")(recipes)


def recipes(json_: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """List the bundled recipes, each runnable by its name."""
    from shrink.bundle import bundled_recipes
    from shrink.console import Console

    console = Console(as_json=json_, quiet=quiet)
    found = bundled_recipes()
    if json_:
        console.document(
            [{"name": r.name, "summary": r.summary, "path": str(r.path)} for r in found]
        )
        return
    width = max((len(r.name) for r in found), default=0)
    for recipe in found:
        console.print(f"{recipe.name:<{width}}  {recipe.summary}")
