"""`shrink recipes`."""

from __future__ import annotations

import shutil
import sys
import textwrap

import typer

from shrink.cli.options import JsonFlag, QuietFlag

_ENDLESS = 1_000_000
_LEAST_TEXT = 30


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("recipes")(recipes)


def recipes(json_: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """List the bundled recipes, each runnable by its name."""
    from shrink.base.console import Console
    from shrink.recipe.bundle import bundled_recipes

    console = Console(as_json=json_, quiet=quiet)
    found = bundled_recipes()
    if json_:
        console.document(
            [{"name": r.name, "summary": r.summary, "path": str(r.path)} for r in found]
        )
        return
    width = max((len(r.name) for r in found), default=0)
    # Wrapped for people; whole lines for programs, which have no width.
    line = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ENDLESS
    for recipe in found:
        indent = " " * (width + 2)
        text = f"{recipe.name:<{width}}  {recipe.summary}"
        fits = max(line, len(indent) + _LEAST_TEXT)
        console.print(textwrap.fill(text, fits, subsequent_indent=indent, break_on_hyphens=False))
