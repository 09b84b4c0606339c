"""`shrink search`: finds the recipe for a device's limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from shrink.cli.flags import Flags
from shrink.cli.options import (
    CustomObjectsOption,
    DataOption,
    ForceFlag,
    JsonFlag,
    QuietFlag,
    TrustFlag,
    VerboseFlag,
    shown_flags,
)

SearchOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="The search's folder, by default runs/NAME-search; or a .tflite file that the best is "
        "copied to.",
        show_default=False,
    ),
]
SearchSetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="STAGE.KEY=VALUE",
        help="Change a key of the recipe, such as train.epochs=5, or of the search: "
        "'search.space={prune.sparsity: [0.3, 0.5]}' names the values to try.",
        show_default=False,
    ),
]
SearchJobsOption = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", min=1, help="Trials in parallel, each in its own process."
    ),
]


def command(name: str, words: Sequence[str]) -> Callable[..., None]:
    """Return the command with its flags."""
    from shrink.base.fields import named_fields
    from shrink.cli.flags import flag_of, with_flags
    from shrink.recipe.schema import describe_fields
    from shrink.recipe.search_config import NOT_FLAGS, SearchConfig

    describe_fields()
    flags = [flag_of(*one) for one in named_fields(SearchConfig, NOT_FLAGS)]
    return with_flags(search, flags, shown_flags("search", words))


def search(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|RECIPE",
            help="A model with --data, or a recipe, whose baseline, data and training are used.",
        ),
    ],
    *,
    flags: Flags,
    data: DataOption = None,
    jobs: SearchJobsOption = 1,
    set_: SearchSetOption = None,
    output: SearchOutputOption = None,
    force: ForceFlag = False,
    trust_model: TrustFlag = False,
    custom_objects: CustomObjectsOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    from shrink.base.console import Console
    from shrink.base.yaml import parse_scalar
    from shrink.recipe.overrides import Override
    from shrink.run.options import RunOptions
    from shrink.run.process import preload
    from shrink.search.candidates import Candidates, search_overrides
    from shrink.search.session import Search

    preload()
    console = Console(as_json=json_, quiet=quiet, verbose=verbose)
    overrides = [Override.parse(text) for text in set_ or ()]
    values = {keys: parse_scalar(text, ".".join(keys)) for keys, text in flags.items()}
    overrides += search_overrides(values, lambda name, value: f"--{name.replace('_', '-')} {value}")
    candidates = Candidates.of(model, overrides, data, custom_objects)
    folder = output or candidates.folder
    options = RunOptions(output=folder, force=force, trust_model=trust_model)
    made = Search(candidates, options, console)
    made.jobs = jobs
    raise typer.Exit(made.run())
