"""`shrink run`: a recipe, or a sweep of it."""

from __future__ import annotations

from pathlib import Path

import typer

from shrink.cli.options import (
    DryRunFlag,
    ForceFlag,
    FromOption,
    JobsOption,
    JsonFlag,
    MlflowOption,
    NoCacheFlag,
    NotesFlag,
    OutputOption,
    QuietFlag,
    RecipeArgument,
    SetOption,
    TensorboardOption,
    TrustFlag,
    UntilOption,
    VerboseFlag,
)


def run(
    recipe: RecipeArgument,
    *,
    set_: SetOption = None,
    output: OutputOption = None,
    dry_run: DryRunFlag = False,
    force: ForceFlag = False,
    no_cache: NoCacheFlag = False,
    from_: FromOption = None,
    until: UntilOption = None,
    jobs: JobsOption = 1,
    trust_model: TrustFlag = False,
    tensorboard: TensorboardOption = None,
    mlflow: MlflowOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
    notes: NotesFlag = False,
) -> None:
    from shrink.run.process import preload

    if not dry_run:
        preload()  # while the recipe is read
    from shrink.base.console import Console
    from shrink.base.errors import RecipeError
    from shrink.recipe.bundle import find_recipe
    from shrink.recipe.matrix import load_variants
    from shrink.recipe.plan import build_plan
    from shrink.run.options import RunOptions
    from shrink.run.session import run_plan
    from shrink.run.tool import Trackers

    console = Console(as_json=json_, quiet=quiet, verbose=verbose, notes=notes)
    trackers = Trackers(tensorboard, mlflow)
    trackers.check()
    variants = load_variants(find_recipe(recipe), set_ or ())
    first = variants.each[0].loaded
    options = RunOptions(
        output=output or Path("runs") / first.recipe.name,
        force=force,
        use_store=not no_cache,
        first=from_,
        last=until,
        trust_model=trust_model,
    )
    if variants.is_sweep:
        from shrink.run.sweep import run_sweep

        raise typer.Exit(
            run_sweep(variants, options, console, dry_run=dry_run, jobs=jobs, trackers=trackers)
        )
    if jobs > 1:
        raise RecipeError(
            "--jobs needs a sweep; this recipe is a single run",
            subject=f"--jobs {jobs}",
            hint="leave it out, or sweep: --set prune.sparsity=0.3,0.5",
        )
    plan = build_plan(first)
    raise typer.Exit(run_plan(plan, options, console, dry_run=dry_run, trackers=trackers))
