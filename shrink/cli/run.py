"""`shrink run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shrink.cli.examples import epilog
from shrink.cli.options import (
    ForceFlag,
    JsonFlag,
    MlflowOption,
    NoCacheFlag,
    OutputOption,
    QuietFlag,
    RecipeArgument,
    SetOption,
    TensorboardOption,
    TrustFlag,
    VerboseFlag,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", epilog=epilog("run"))(run)


def run(
    recipe: RecipeArgument,
    set_: SetOption = None,
    output: OutputOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be computed, and why; run nothing.")
    ] = False,
    force: ForceFlag = False,
    no_cache: NoCacheFlag = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="STAGE",
            help="Compute this stage and all after it again, whatever the store holds.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="STAGE",
            help="Stop after this stage. Gates on later stages, which those on the result are, "
            "are not checked.",
            show_default=False,
        ),
    ] = None,
    trust_model: TrustFlag = False,
    tensorboard: TensorboardOption = None,
    mlflow: MlflowOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Run a recipe: every stage, its report, its gates."""
    from shrink.base.console import Console
    from shrink.recipe.bundle import find_recipe
    from shrink.recipe.load import load_recipe
    from shrink.recipe.plan import build_plan
    from shrink.run.runner import RunOptions
    from shrink.run.session import run_plan
    from shrink.run.trackers import Trackers

    console = Console(as_json=json_, quiet=quiet, verbose=verbose)
    trackers = Trackers(tensorboard, mlflow)
    trackers.check()
    plan = build_plan(load_recipe(find_recipe(recipe), set_ or ()))
    options = RunOptions(
        output=output or Path("runs") / plan.recipe.name,
        force=force,
        use_store=not no_cache,
        first=from_,
        last=until,
        trust_model=trust_model,
    )
    raise typer.Exit(run_plan(plan, options, console, dry_run=dry_run, trackers=trackers))
