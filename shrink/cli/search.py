"""`shrink search`: finds the recipe for a device's limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shrink.cli.options import (
    CustomObjectsOption,
    ForceFlag,
    JobsOption,
    JsonFlag,
    OutputOption,
    QuietFlag,
    SetOption,
    TrustFlag,
    VerboseFlag,
    epilog,
)
from shrink.cli.verbs import DataOption


def _limit(flag: str, metavar: str, text: str) -> object:
    return typer.Option(flag, metavar=metavar, help=text, show_default=False)


FlashOption = Annotated[
    str | None, _limit("--flash", "SIZE", "The most that the .tflite file may take: 64KB.")
]
RamOption = Annotated[
    str | None, _limit("--ram", "SIZE", "The most that the arena in TFLite Micro may take: 40KB.")
]
LatencyOption = Annotated[
    str | None,
    _limit(
        "--latency",
        "MS",
        "The most that an inference may take on this host, or as the recipe's latency.command "
        "measures it: 5ms.",
    ),
]
MaxDropOption = Annotated[
    float | None,
    _limit(
        "--max-drop",
        "N",
        "What the main metric may lose against the baseline: 0.01 is a point. The smallest file "
        "within it is the best; without it, the most accurate within the limits.",
    ),
]
TimeOption = Annotated[
    str | None, _limit("--time", "TIME", "Time for everything, the last measurement too: 30m.")
]
TrialsOption = Annotated[
    int | None,
    typer.Option("--trials", metavar="N", min=1, help="Points trained.", show_default=False),
]
StorageOption = Annotated[
    str | None,
    _limit(
        "--storage",
        "PLACE",
        "What several workers share: a file on a shared disk, or the URL of a database. Start the "
        "same command on each.",
    ),
]
SamplerOption = Annotated[
    str | None, _limit("--sampler", "gp|tpe|nsga2|random", "How points are chosen.")
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", min=0, help="Of the sampler.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("search", epilog=epilog("search"))(search)


def search(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|RECIPE",
            help="A model with --data, or a recipe, whose baseline, data and training are taken.",
        ),
    ],
    *,
    data: DataOption = None,
    flash: FlashOption = None,
    ram: RamOption = None,
    latency: LatencyOption = None,
    max_drop: MaxDropOption = None,
    time: TimeOption = None,
    trials: TrialsOption = None,
    jobs: JobsOption = 1,
    storage: StorageOption = None,
    sampler: SamplerOption = None,
    seed: SeedOption = None,
    set_: SetOption = None,
    output: OutputOption = None,
    force: ForceFlag = False,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Find the recipe for a device: the smallest file, or the most accurate, within limits."""
    from shrink.base.console import Console
    from shrink.run.options import RunOptions
    from shrink.run.process import preload
    from shrink.search.asking import Wanted, asking_of, is_recipe, recipe_named, recipe_of_model
    from shrink.search.candidates import Candidates
    from shrink.search.session import Search

    preload()
    console = Console(as_json=json_, quiet=quiet, verbose=verbose)
    if is_recipe(model):
        _refuse_of_recipes(data, custom_objects)
        recipe = recipe_named(model, set_ or ())
    else:
        recipe = recipe_of_model(model, data, custom_objects, set_ or ())
    wanted = Wanted(flash, ram, latency, max_drop, time, trials, storage, sampler, seed)
    asking = asking_of(wanted, recipe.config)
    candidates = Candidates(recipe.raw, recipe.source, recipe.space(asking))
    options = RunOptions(output=output or recipe.folder(), force=force, trust_model=trust_model)
    found = Search(candidates, asking, options, console)
    found.jobs = jobs
    raise typer.Exit(found.run())


def _refuse_of_recipes(data: str | None, custom_objects: Path | None) -> None:
    from shrink.base.errors import RecipeError

    for flag, value in (("--data", data), ("--custom-objects", custom_objects)):
        if value is not None:
            raise RecipeError(
                "a recipe names its own", subject=flag, hint="leave it out, or change it by --set"
            )
