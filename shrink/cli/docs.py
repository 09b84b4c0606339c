"""`shrink docs`: the page about a name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from shrink.cli.options import JsonFlag, QuietFlag, epilog

if TYPE_CHECKING:
    from shrink.base.console import Console
    from shrink.tools.pages import Pages, Section


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("docs", epilog=epilog("docs"))(docs)


def docs(
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]",
            help="A page, a command, a key of a recipe, a figure, an error, a warning's code or an "
            "exit code; a whole message will do. Without it, all pages are listed.",
            show_default=False,
        ),
    ] = None,
    print_: Annotated[
        bool, typer.Option("--print", help="Only print where it is; open nothing.")
    ] = False,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Open the documentation of a name, in a browser where a built site is known."""
    from shrink.base.console import Console
    from shrink.tools.pages import installed_pages

    console, pages = Console(as_json=json_, quiet=quiet), installed_pages()
    if not topic:
        _list(pages, console, json_)
        return
    section = pages.find(" ".join(topic))
    address = pages.address(section)
    path = f"{pages.folder / section.page}{section.anchor}"
    if json_:
        console.document(
            {"page": section.page, "title": section.title, "path": path, "address": address}
        )
    elif print_:
        console.print(address or path)
    elif not (address and sys.stdout.isatty() and _opened(address)):
        _show(section, console)


def _list(pages: Pages, console: Console, as_json: bool) -> None:
    found = {one.page: one.title for one in pages.sections if one.is_page}
    if as_json:
        console.document({"folder": str(pages.folder), "pages": found})
        return
    width = max(map(len, found))  # with the ending, which is not shown
    for page in sorted(found):
        console.print(f"{page.removesuffix('.md'):<{width}}{found[page]}")


def _opened(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)


def _show(section: Section, console: Console) -> None:
    """Print a section, with headings and tables drawn where a terminal shows it."""
    if not sys.stdout.isatty():
        console.print(section.text)
        return
    from rich.markdown import Markdown

    console.rich(sys.stdout).print(Markdown(section.text))
