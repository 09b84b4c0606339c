"""`shrink data check`, `pack` and `unpack`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shrink.cli.options import JsonFlag, QuietFlag, epilog

if TYPE_CHECKING:
    from shrink.contract.findings import Unpacked
    from shrink.contract.job import DataJob, Section


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(help="Look at data before training on it.", no_args_is_help=True)
    group.command("check", epilog=epilog("check"))(check)
    group.command("pack")(pack)
    group.command("unpack")(unpack)
    app.add_typer(group, name="data")


def check(
    data: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|PATH",
            help="A recipe, a source (digits), a folder of images, or a file.",
        ),
    ],
    seed: Annotated[int, typer.Option("--seed", help="The seed that decides the splits.")] = 0,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Read every example once: counts by class and split, shapes, values, corrupt files."""
    from shrink.base.console import Console
    from shrink.contract.codec import to_plain
    from shrink.contract.findings import DataCheck
    from shrink.contract.job import CheckJob
    from shrink.data.config import DataConfig
    from shrink.data.early import check_early
    from shrink.data.fingerprint import fingerprint
    from shrink.recipe.data_reference import parse_data_reference
    from shrink.recipe.load import validate_section
    from shrink.report.sanity import data_warnings
    from shrink.run.tool import run_action
    from shrink.tools.show import show_data

    console = Console(as_json=json_, quiet=quiet)
    config = validate_section(DataConfig, parse_data_reference(data, Path.cwd()), data)
    check_early(config)
    job = CheckJob(name=data, data=config.model_dump(mode="json"), seed=seed)
    found = run_action(job, DataCheck, console)
    console.end_progress()
    train, test = found.splits["train"], found.splits["test"]
    warnings = data_warnings(test.examples, train.classes, test.classes)
    found = replace(found, fingerprint=fingerprint(config), warnings=tuple(warnings))
    for warning in warnings:
        console.warn(warning.text())
    if json_:
        console.document(to_plain(found))
    elif not quiet:
        show_data(found, console.rich())
    if found.bad:
        raise typer.Exit(3)


DataArgument = Annotated[
    str,
    typer.Argument(metavar="RECIPE|PATH", help="A recipe, a source (digits), a folder or a file."),
]
SeedOption = Annotated[int, typer.Option("--seed", help="The seed that decides the splits.")]
FolderOption = Annotated[Path, typer.Option("--output", metavar="DIR", help="The new folder.")]


def pack(
    data: DataArgument,
    output: FolderOption,
    shard_size: Annotated[
        str, typer.Option("--shard-size", metavar="SIZE", help="Size of a file, such as 128MB.")
    ] = "128MB",
    encoding: Annotated[
        str,
        typer.Option(
            "--encoding", metavar="raw|png", help="How inputs are stored; png is for images."
        ),
    ] = "raw",
    seed: SeedOption = 0,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write any data as sharded TFRecord files with a manifest; continues where it was killed."""
    from shrink.base.errors import RecipeError
    from shrink.base.fields import parse_bytes
    from shrink.contract.findings import Packed
    from shrink.contract.job import PackJob

    if encoding not in ("raw", "png"):
        raise RecipeError(f"{encoding!r} is no encoding", subject="--encoding", hint="raw or png")
    try:
        shard_bytes = parse_bytes(shard_size)
    except ValueError as error:
        raise RecipeError(str(error), subject="--shard-size", hint="such as 128MB") from error
    job = PackJob(
        name=data,
        data=_section(data),
        seed=seed,
        output=output.expanduser().absolute(),
        shard_bytes=shard_bytes,
        encoding="png" if encoding == "png" else "raw",
    )
    _convert(job, Packed, json_=json_, quiet=quiet)


def unpack(
    data: DataArgument,
    output: FolderOption,
    seed: SeedOption = 0,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Write labelled images of any data as PNG files, split/class/number.png."""
    from shrink.contract.findings import Unpacked
    from shrink.contract.job import UnpackJob

    folder = output.expanduser().absolute()
    job = UnpackJob(name=data, data=_section(data), seed=seed, output=folder)
    _convert(job, Unpacked, json_=json_, quiet=quiet)


def _section(data: str) -> Section:
    from shrink.data.config import DataConfig
    from shrink.data.early import check_early
    from shrink.recipe.data_reference import parse_data_reference
    from shrink.recipe.load import validate_section

    config = validate_section(DataConfig, parse_data_reference(data, Path.cwd()), data)
    check_early(config)
    return config.model_dump(mode="json")


def _convert(job: DataJob, kind: type[Unpacked], *, json_: bool, quiet: bool) -> None:
    from shrink.base.console import Console
    from shrink.contract.codec import to_plain
    from shrink.run.tool import run_action

    console = Console(as_json=json_, quiet=quiet)
    result = run_action(job, kind, console)
    console.end_progress()
    if json_:
        console.document(to_plain(result))
    elif not quiet:
        counts = ", ".join(f"{split} {count:,}" for split, count in result.examples.items())
        console.print(f"{counts}: {result.path}")
