"""`shrink data check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shrink.cli.options import JsonFlag, QuietFlag


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Look at data before training on it.", no_args_is_help=True)
    group.command("check")(check)
    app.add_typer(group, name="data")


def check(
    data: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|PATH",
            help="A recipe, a source (digits), a folder of pictures, an .npz or .h5 file.",
        ),
    ],
    seed: Annotated[int, typer.Option("--seed", help="The seed that decides the splits.")] = 0,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Read every example once: counts by class and split, shapes, values, corrupt files."""
    from shrink.console import Console
    from shrink.data.config import DataConfig
    from shrink.data.fingerprint import fingerprint
    from shrink.data.reference import parse_data_reference
    from shrink.recipe.load import validate_section
    from shrink.run.tool import run_action
    from shrink.tools.show import show_data

    console = Console(as_json=json_, quiet=quiet)
    config = validate_section(DataConfig, parse_data_reference(data, Path.cwd()), data)
    settings = {"data": config.model_dump(mode="json"), "seed": seed}
    found = run_action("data-check", data, console, **settings)
    found["fingerprint"] = fingerprint(config)
    if json_:
        console.document(found)
    elif not quiet:
        show_data(found, console.rich())
    if found["bad"]:
        raise typer.Exit(3)
