"""`shrink doctor`: what a bug report should say, and what is wrong with the installation."""

from __future__ import annotations

import typer

from shrink.cli.options import JsonFlag, QuietFlag

_PROBLEM_CODE = 5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(json_: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """Check the installation; the output belongs in a bug report. Exit code 5 on a problem."""
    from shrink.base.console import Console
    from shrink.run.doctor import examine, lines_of

    console = Console(as_json=json_, quiet=quiet)
    found = examine(console)
    if json_:
        console.document(found)
    else:
        for line in lines_of(found):
            console.print(line)
    if found["problems"]:
        raise typer.Exit(_PROBLEM_CODE)
