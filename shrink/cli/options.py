"""Flags and examples that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperOption

from shrink.base.errors import RecipeError
from shrink.base.removal import replacement

if TYPE_CHECKING:
    from shrink.base.console import Console

T = TypeVar("T")


class CheckedCommand(TyperCommand):
    """A command that refuses a repeated flag, of which Typer would silently keep the last value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line.

        Raises:
            RecipeError: a flag of one value, or a switch with its opposite, is there twice.
        """
        seen = list[TyperOption]()
        typed = [] if ctx.resilient_parsing else list(args)  # nothing is refused while it completes
        for one in self.make_parser(ctx).parse_args(args=typed)[2]:
            if not isinstance(one, TyperOption) or one.multiple or one.count:
                continue
            if one in seen and (not one.is_flag or one.secondary_opts):
                flag = max(one.opts, key=len)
                raise RecipeError(
                    f"{flag} is given twice, and takes one value",
                    subject=ctx.command_path,
                    hint="give it once; commas separate the values of a list",
                )
            seen.append(one)
        return super().parse_args(ctx, args)


def recipe_names(incomplete: str) -> list[str]:
    """Return the bundled recipes and the recipe files that begin so."""
    from shrink.recipe.bundle import bundled_recipes

    names = [one.name for one in bundled_recipes() if one.name.startswith(incomplete)]
    files = map(str, Path(incomplete).parent.glob("*.yaml"))
    return [*names, *(file for file in files if file.startswith(incomplete))]


JsonFlag = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")
]
AlwaysJsonFlag = Annotated[
    bool,
    typer.Option("--json", help="Accepted; the output is always JSON.", show_default=False),
]
QuietFlag = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only errors, missed gates and the result.")
]
VerboseFlag = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also print the output of each stage's worker.")
]
NotesFlag = Annotated[
    bool,
    typer.Option("--notes", help="Also print the notes: decisions, and how figures were measured."),
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
    typer.Option("--force", help="Overwrite another recipe's run, or other files."),
]
NoCacheFlag = Annotated[
    bool, typer.Option("--no-cache", help="Compute every stage again and replace it in the cache.")
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
        help="Load model files even if they contain code (Lambda layers); the report says so.",
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
DryRunFlag = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print what would be computed, why, and how long such a stage last took; run nothing.",
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="STAGE",
        help="Compute this stage and all after it again, whatever the cache holds.",
        show_default=False,
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="STAGE",
        help="Stop after this stage. Gates on later stages, and on the result, are skipped.",
        show_default=False,
    ),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="Sweep runs in parallel, each in its own process. Shared stages are computed once.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="STAGE.KEY=VALUE",
        help="Change a key of the recipe, such as prune.sparsity=0.8 or training.seed=1. Several "
        "values, as in prune.sparsity=0.3,0.5, are a sweep: a run for every combination.",
        show_default=False,
    ),
]
RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        autocompletion=recipe_names,
        help="A recipe file, - for standard input, or the name of a bundled recipe.",
    ),
]
RecipesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RECIPE...",
        autocompletion=recipe_names,
        help="Recipe files, - for standard input, or names of bundled recipes.",
    ),
]

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A .keras or .h5 file, a SavedModel, a run folder, or file.py:function.",
    ),
]
AnyModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A .keras, .h5 or .tflite file, a SavedModel, a run folder, or file.py:function.",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="D",
        help="A source (digits), a folder of images, an .npz, .h5 or .csv file, or a YAML file "
        "with a data: section. Not needed if MODEL is a run folder, or if stage and gates need no "
        "examples.",
        show_default=False,
    ),
]
GateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--gate",
        metavar="NAME=LIMIT",
        help="A figure or metric and its limit, such as accuracy=0.9 or tflite_bytes=40KB; exit "
        "code 1 if it is missed. Repeat it for several.",
        show_default=False,
    ),
]
EmitFlag = Annotated[
    bool, typer.Option("--emit-recipe", help="Print the recipe instead of running it.")
]


_MEANT = {
    "--lr": "--optimizer-learning-rate",
    "--learning-rate": "--optimizer-learning-rate",
    "--batch": "--global-batch-size",
    "--batch-size": "--global-batch-size",
    "--out": "--output",
    "--out-dir": "--output",
    "--output-dir": "--output",
}
"""What other tools call a flag, and what it is here."""


def meant(message: str) -> tuple[str, str | None]:
    """Return a parser's message about an unknown flag, and the flag that was meant, if known."""
    if message.endswith(("(true)", "(false)", "does not take a value")):
        return message, "a switch takes no value: write --FLAG, or --no-FLAG"
    plain, _, _ = message.partition(" (Possible options")
    if not plain.startswith("No such option"):
        return message, None
    flag = plain.rpartition(" ")[2]
    if instead := replacement(flag):
        return f"{flag} was removed", instead
    near = _MEANT.get(flag)
    return (plain, f"did you mean {near}?") if near else (message, None)


HELP_ALL = "--help-all"
SHOWN: dict[str, tuple[str, ...]] = {
    "train": ("epochs", "optimizer_learning_rate", "global_batch_size", "memory_limit"),
    "distill": ("epochs", "temperature", "alpha", "control", "memory_limit"),
    "prune": ("method", "sparsity", "ratio", "macs", "file_bytes", "epochs", "memory_limit"),
    "cluster": ("clusters", "epochs"),
    "quantize": ("scheme", "calibration_samples", "file_bytes", "aware", "epochs"),
    "compact": ("arena_bytes", "max_extra_macs", "target"),
    "evaluate": ("task_metrics", "seed"),
    "search": ("flash", "ram", "latency", "max_drop", "time", "trials", "storage"),
}
"""Flags of the recipe's keys that `--help` lists; `--help-all` lists every one."""


def shown_flags(command: str, words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the flags that a command's help lists, None for all: asked for, or to complete."""
    return None if HELP_ALL in words or "COMP_WORDS" in os.environ else SHOWN[command]


def help_hint(command: str) -> str:
    """Return a hint that names the help with every flag of a command, such as `shrink prune`."""
    flag = HELP_ALL if command.rpartition(" ")[2] in SHOWN else "--help"
    return f"`{command} {flag}` lists what it takes"


def print_result(result: T, console: Console, show: Callable[[T], object]) -> None:
    """Print what a command found: as JSON, or for people; `show` may return lines to print."""
    from shrink.contract.codec import to_plain

    if console.as_json:
        console.document(to_plain(result))
    elif not console.quiet:
        for line in cast("list[str] | None", show(result)) or ():
            console.print(line)


EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "shrink run digits",
        "shrink run recipes/digits.yaml --set prune.sparsity=0.7 --dry-run",
        "shrink run recipes/digits.yaml --from prune --output runs/again",
        "shrink run recipes/digits.yaml --set prune.sparsity=0.3,0.5,0.7 --output runs/sweep",
    ),
    "train": ("shrink train student.py:build --data pictures/ --epochs 20 --memory-limit 2GB",),
    "distill": (
        "shrink distill --teacher big.keras --student student.py:build --data pictures/",
        "shrink distill --teacher big.keras --student student.py:build --data digits --alpha 0.5",
    ),
    "prune": (
        "shrink prune model.keras --data arrays.npz --sparsity 0.8 --epochs 5",
        "shrink prune model.h5 --data pictures/ --method channels --macs 0.5",
    ),
    "cluster": ("shrink cluster model.keras --data pictures/ --clusters 16 --epochs 3",),
    "quantize": (
        "shrink quantize model.h5 --data pictures/",
        "shrink quantize model.h5 --data pictures/ --scheme mixed --file-bytes 64KB",
        "shrink quantize runs/prune-model --scheme float16 --emit-recipe",
    ),
    "evaluate": (
        "shrink evaluate model.h5 --data pictures/",
        "shrink evaluate model.tflite --data test.npz --gate accuracy=0.9 --gate tflite_bytes=40KB",
    ),
    "profile": ("shrink profile model.h5 --batch-size 512 --memory-limit 2GB",),
    "inspect": ("shrink inspect model.tflite", "shrink inspect model.h5 --groups"),
    "export": ("shrink export runs/quantize-model --format cc-array --output firmware/",),
    "compact": (
        "shrink compact model.tflite --output small.tflite",
        "shrink compact model.tflite --data pictures/ --arena-bytes 64KB",
    ),
    "bench": ("shrink bench model.tflite --threads 2",),
    "search": (
        "shrink search recipes/digits.yaml --flash 40KB --max-drop 0.02 --time 4m",
        "shrink search model.h5 --data pictures/ --flash 64KB --ram 40KB --time 30m",
    ),
    "report": (
        "shrink report runs/digits",
        "shrink report runs/digits --tensorboard logs",
    ),
    "diff": ("shrink diff runs/main runs/digits --markdown",),
    "compare": (
        "shrink compare runs/main runs/digits",
        "shrink compare runs/sweep --output runs/page",
    ),
    "validate": (
        "shrink validate recipes/digits.yaml --set training.seed=1",
        "shrink validate digits digits-train",
    ),
    "init": (
        "shrink init model.h5 --data pictures/",
        "shrink init student.py:build --data digits --output digits.yaml",
    ),
    "check": ("shrink data check pictures/", "shrink data check recipes/digits.yaml"),
}


def epilog(command: str) -> str:
    """Return what a command's help ends with; the first character keeps the lines as they are."""
    lines = "\n".join(f"  {example}" for example in EXAMPLES[command])
    more = f"\n\n{HELP_ALL} lists every flag." if command in SHOWN else ""
    return f"\b\nExamples:\n{lines}{more}"
