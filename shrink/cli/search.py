"""`shrink search`: finds the recipe for a device's limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from shrink.cli.options import (
    CustomObjectsOption,
    ForceFlag,
    JsonFlag,
    QuietFlag,
    TrustFlag,
    VerboseFlag,
    epilog,
    shown_flags,
)
from shrink.cli.verbs import DataOption, Flags, without_flags

OutputOption = Annotated[
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
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="STAGE.KEY=VALUE",
        help="Change a key of the recipe, such as train.epochs=5, or of the search: "
        "'search.space={prune.sparsity: [0.3, 0.5]}' names the values to try.",
        show_default=False,
    ),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", min=1, help="Trials at a time, each in a process of its own."
    ),
]


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the command, with its flags where it is among the words of the command line."""
    if "search" in words:
        from shrink.base.fields import named_fields
        from shrink.cli.flags import flag_of, with_flags
        from shrink.recipe.schema import describe_fields
        from shrink.recipe.search_config import NOT_FLAGS, SearchConfig

        describe_fields()
        fields = named_fields(SearchConfig, NOT_FLAGS)
        flags = [flag_of(*one) for one in fields]
        command = with_flags(search, flags, shown_flags("search", words))
    else:
        command = without_flags(search)
    app.command("search", epilog=epilog("search"))(command)


def search(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|RECIPE",
            help="A model with --data, or a recipe, whose baseline, data and training are taken.",
        ),
    ],
    *,
    flags: Flags,
    data: DataOption = None,
    jobs: JobsOption = 1,
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
    from shrink.base.errors import Position
    from shrink.base.fields import named_fields
    from shrink.base.yaml import parse_scalar
    from shrink.recipe.load import SEARCH
    from shrink.recipe.overrides import Override
    from shrink.recipe.search_config import NOT_FLAGS, SearchConfig
    from shrink.run.options import RunOptions
    from shrink.run.process import preload
    from shrink.search.candidates import Candidates
    from shrink.search.session import Search

    preload()
    console = Console(as_json=json_, quiet=quiet, verbose=verbose)
    overrides = [Override.parse(text) for text in set_ or ()]
    for name, keys, _ in named_fields(SearchConfig, NOT_FLAGS):
        if (text := flags.get(keys)) is not None:
            place = Position(f"--{name.replace('_', '-')} {text}", 0, 0)
            overrides.append(Override((SEARCH, *keys), parse_scalar(text), text, place))
    candidates = Candidates.of(model, overrides, data, custom_objects)
    folder = output or candidates.folder
    options = RunOptions(output=folder, force=force, trust_model=trust_model)
    made = Search(candidates, options, console)
    made.jobs = jobs
    raise typer.Exit(made.run())
