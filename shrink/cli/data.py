"""`shrink data check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from shrink.base.console import Console
from shrink.cli.options import CheckedCommand, JsonFlag, QuietFlag, epilog, print_result
from shrink.contract.findings import DataCheck
from shrink.contract.job import CheckJob
from shrink.data.config import DataConfig, source_of
from shrink.data.fingerprint import fingerprint
from shrink.recipe.data_reference import parse_data_reference
from shrink.recipe.load import validate_section
from shrink.report.sanity import data_warnings
from shrink.run.tool import run_action
from shrink.tools.show import show_data


def command(name: str, words: Sequence[str]) -> typer.Typer:
    """Return the group of commands."""
    group = typer.Typer(no_args_is_help=True)
    group.command("check", cls=CheckedCommand, epilog=epilog("check"))(check)
    return group


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
    """Read every example once: classes, shapes, broken files."""

    console = Console(as_json=json_, quiet=quiet)
    config = validate_section(DataConfig, parse_data_reference(data, Path.cwd()), data)
    source_of(config.source).check(config)
    job = CheckJob(name=data, data=config.model_dump(mode="json"), seed=seed)
    found = run_action(job, DataCheck, console)
    console.end_progress()
    train, test = found.splits["train"], found.splits["test"]
    warnings = data_warnings(test.examples, train.classes, test.classes, config.test_split == 1)
    found = replace(found, fingerprint=fingerprint(config), warnings=tuple(warnings))
    for warning in warnings:
        console.warn(warning.text())
    print_result(found, console, lambda found: show_data(found, console.rich()))
    if found.bad:
        raise typer.Exit(3)
