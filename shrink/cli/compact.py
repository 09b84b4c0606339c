"""`shrink compact`: less memory on a microcontroller, with the same outputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from shrink.cli.options import JsonFlag, QuietFlag, epilog

if TYPE_CHECKING:
    from shrink.tools.compact import Rewriting

_DEFAULT_EXTRA_MACS = 0.05


TfliteArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A .tflite file, or a run folder that ends in one.")
]
ArenaOption = Annotated[
    str | None,
    typer.Option(
        "--arena-bytes",
        metavar="SIZE",
        help="The tensor arena that it shall fit, such as 64KB, with as little extra work as is "
        "found.",
    ),
]
ExtraMacsOption = Annotated[
    float | None,
    typer.Option(
        "--max-extra-macs",
        metavar="SHARE",
        min=0.0,
        max=10.0,
        help=f"Multiply-accumulates that may come on top, {_DEFAULT_EXTRA_MACS} by default.",
        show_default=False,
    ),
]
TargetOption = Annotated[
    Literal["tflm"], typer.Option("--target", help="The runtime whose memory counts.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE.tflite", help="File to write; by default beside the model."
    ),
]
ForceFlag = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compact", epilog=epilog("compact"))(compact)


def compact(
    model: TfliteArgument,
    *,
    arena_bytes: ArenaOption = None,
    max_extra_macs: ExtraMacsOption = None,
    target: TargetOption = "tflm",
    output: OutputOption = None,
    force: ForceFlag = False,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Rewrite a .tflite file to take less memory in TFLite Micro, with outputs equal to the byte.

    No data is needed. A file that cannot be improved comes back as it is, with the reason.
    """
    from shrink.base.console import Console
    from shrink.base.errors import ModelError
    from shrink.contract.job import CompactJob
    from shrink.model.reference import parse_model_reference
    from shrink.run.tool import run_tool

    console = Console(as_json=json_, quiet=quiet)
    reference = parse_model_reference(model, Path.cwd())
    if reference.kind != "tflite":
        raise ModelError(
            "compact rewrites .tflite files",
            subject=reference.path,
            hint="quantize the model first: shrink quantize MODEL --scheme static_wi8_ai8",
        )
    job = CompactJob(
        name=str(reference),
        model=reference.source(),
        target=_target(reference.path, output, force),
        arena_bytes=_limit(arena_bytes, max_extra_macs),
        max_extra_macs=_DEFAULT_EXTRA_MACS if max_extra_macs is None else max_extra_macs,
    )
    result: Rewriting = run_tool(job, console)
    if json_:
        console.document(result)
    elif not quiet:
        for line in lines_of(result):
            console.print(line)


def _limit(arena: str | None, share: float | None) -> int | None:
    """Return the arena to fit in bytes, None where it is a share of MACs that decides."""
    from shrink.base.errors import RecipeError
    from shrink.base.fields import parse_bytes

    if share is not None and not math.isfinite(share):
        raise RecipeError("it is a number from 0 to 10", subject="--max-extra-macs")
    if arena is None:
        return None
    if share is not None:
        raise RecipeError(
            "the arena to fit decides how much work comes on top: give one of the two",
            subject="--max-extra-macs",
        )
    try:
        return parse_bytes(int(arena) if arena.isdigit() else arena)
    except ValueError as error:
        raise RecipeError(str(error), subject="--arena-bytes") from error


def _target(model: Path, output: Path | None, force: bool) -> Path:
    """Return the file to write."""
    from shrink.base.errors import RecipeError

    target = (output or model.with_name(f"{model.stem}-compact.tflite")).resolve()
    if target.suffix != ".tflite":
        raise RecipeError("the name of the file to write ends in .tflite", subject=target)
    if target.is_dir():
        raise RecipeError("the file to write is a folder", subject=target)
    if target.exists() and not force:
        raise RecipeError(
            "it is there already", subject=target, hint="choose --output, or --force to overwrite"
        )
    return target


def lines_of(result: Rewriting) -> list[str]:
    """Return what became of a file, for people."""
    before, after = result["arena_before"], result["arena_after"]
    if not result["changed"]:
        return [
            f"unchanged   {result['reason']}",
            f"arena       {before:,} bytes",
            f"written     {result['path']}, the same bytes",
        ]
    share = result["macs_after"] / max(1, result["macs_before"]) - 1
    equality = result["equality"]
    assert equality is not None, "a changed file is compared"
    needs = ", ".join(result["new_operators"]) or "none that it did not have"
    return [
        f"arena       {before:,} -> {after:,} bytes ({after / before - 1:+.1%}); no plan of this "
        f"file takes less than {result['bound_bytes']:,}",
        f"MACs        {result['macs_before']:,} -> {result['macs_after']:,} ({share:+.1%})",
        f"file        {result['file_bytes_before']:,} -> {result['file_bytes']:,} bytes",
        f"operators   new to a firmware's resolver: {needs}",
        f"outputs     equal to the byte on {equality['examples']} inputs in "
        f"{', '.join(equality['runtimes'])}"
        + ("" if equality["distinct"] else "; they all give one answer, which shows little"),
        *(f"done        {line}" for line in result["done"]),
        f"written     {result['path']}",
    ]
