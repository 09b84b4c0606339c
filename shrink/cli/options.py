"""Flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JsonFlag = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")
]
AlwaysJsonFlag = Annotated[
    bool,
    typer.Option("--json", help="Taken, and without effect: it is JSON.", show_default=False),
]
QuietFlag = Annotated[
    bool, typer.Option("--quiet", "-q", help="Nothing but errors and the result.")
]
VerboseFlag = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also what each stage's worker prints, as it does.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="The run folder, by default runs/NAME; or a .tflite file for the artifact alone.",
        show_default=False,
    ),
]
ForceFlag = Annotated[
    bool,
    typer.Option("--force", help="Write into a folder of another recipe's run or of other files."),
]
NoCacheFlag = Annotated[
    bool, typer.Option("--no-cache", help="Compute every stage again and store it anew.")
]
TensorboardOption = Annotated[
    Path | None,
    typer.Option(
        "--tensorboard",
        metavar="LOGDIR",
        help="Also write curves and figures as TensorBoard logs.",
        show_default=False,
    ),
]
MlflowOption = Annotated[
    str | None,
    typer.Option(
        "--mlflow",
        metavar="URI",
        help="Also log to this MLflow tracking address, a nested run per stage.",
        show_default=False,
    ),
]
TrustFlag = Annotated[
    bool,
    typer.Option(
        "--trust-model",
        help="Load the model files whatever they hold, Lambda layers too; the report says so.",
    ),
]
CustomObjectsOption = Annotated[
    Path | None,
    typer.Option(
        "--custom-objects",
        metavar="FILE.py",
        help="A Python file whose classes and functions the model names; its code runs.",
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="STAGE.KEY=VALUE",
        help="Change a key of the recipe, such as prune.sparsity=0.8 or training.seed=1.",
        show_default=False,
    ),
]
RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe file, - for standard input, or the name of a bundled recipe.",
    ),
]
RecipesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RECIPE...",
        help="Recipe files, - for standard input, or names of bundled recipes.",
    ),
]
