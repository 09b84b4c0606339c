"""`shrink report`, `diff` and `compare`: read saved runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shrink.base import files
from shrink.base.console import Console
from shrink.base.errors import RecipeError
from shrink.cli.options import (
    JsonFlag,
    MlflowOption,
    NotesFlag,
    QuietFlag,
    TensorboardOption,
    print_result,
)
from shrink.contract.codec import to_plain
from shrink.contract.report_file import read_report
from shrink.contract.usage import lineages_in
from shrink.recipe.compare_files import compare_folders
from shrink.recipe.recipe_diff import recipe_changes
from shrink.report.comparison import (
    COMPARE_HTML,
    render_comparison_markdown,
    render_comparison_terminal,
)
from shrink.report.content import warnings_of
from shrink.report.diff import diff_reports, render_diff_markdown, render_diff_terminal
from shrink.report.run_files import render
from shrink.report.sections import render_report
from shrink.run.tool import Trackers

RunArgument = Annotated[
    Path,
    typer.Argument(metavar="RUN_DIR", help="A run folder, or a report.json."),
]
MarkdownFlag = Annotated[
    bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")
]


def report(
    run: RunArgument,
    tensorboard: TensorboardOption = None,
    mlflow: MlflowOption = None,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    notes: NotesFlag = False,
) -> None:

    console = Console(as_json=json_, quiet=quiet)
    trackers = Trackers(tensorboard, mlflow)
    trackers.check()
    saved = read_report(run)
    folder = run if run.is_dir() else run.parent
    files.write_together(folder, render(saved, lineages_in(folder)))
    for warning in warnings_of(saved):
        console.warn(warning.text())
    print_result(
        saved,
        console,
        lambda it: render_report(it, console.rich(), run_folder=folder, with_notes=notes),
    )
    for line in trackers.publish(folder, console):
        console.say(line)


def diff(
    before: Annotated[
        Path,
        typer.Argument(metavar="RUN_A", help="The run before."),
    ],
    after: Annotated[Path, typer.Argument(metavar="RUN_B", help="The run after.")],
    markdown: MarkdownFlag = False,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Show what changed between two runs: stages, figures, gates."""

    console = Console(as_json=json_, quiet=quiet)
    _check_one_form(markdown, json_)
    first, second = read_report(before), read_report(after)
    difference = diff_reports(first, second, recipe_changes(first, second))
    if json_:
        console.document(to_plain(difference))
    elif markdown:
        console.print(render_diff_markdown(difference).rstrip())
    else:
        render_diff_terminal(difference, console.rich())


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run folders, report.json files, or the folders of sweeps.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Write compare.html, compare.md and compare.json into this folder.",
            show_default=False,
        ),
    ] = None,
    markdown: MarkdownFlag = False,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Compare runs and sweeps: a table, Pareto fronts, settings that differ."""

    console = Console(as_json=json_, quiet=quiet)
    _check_one_form(markdown, json_)
    found = compare_folders(runs, output)
    for warning in found.warnings:
        console.warn(warning)
    if json_:
        console.document(to_plain(found))
    elif markdown:
        console.print(render_comparison_markdown(found).rstrip())
    elif not quiet:
        more = "with --output DIR" if output is None else f"in {COMPARE_HTML}"
        render_comparison_terminal(found, console.rich(), more)
    if output is not None and not json_ and not markdown:
        console.print(str(output / COMPARE_HTML))


def _check_one_form(markdown: bool, json_: bool) -> None:
    """Raise `RecipeError` where a command is asked to print two things."""

    if markdown and json_:
        raise RecipeError("cannot be combined with --json", subject="--markdown")
