"""Pages: lists of sections, their parts and their renderers.

The terminal is printed by rich, Markdown and HTML by the templates beside this file, which escape
every text.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from shrink.report.svg import Plot

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup
    from rich.console import Console

Tone = Literal["good", "bad", "careful", "neutral"]
Mark = Literal["FAIL", "WARN", "SKIP", "PASS"]
Medium = Literal["terminal", "markdown", "html", "notebook"]
NULL = "-"


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Table:
    """Heads and rows of finished cells; the first cell of a row names it.

    Attributes:
        title, caption: above and below it.
        form: `dense` is long and folded, the cells of a `matrix` are shaded by their number.
        left: how many columns are left aligned on a terminal.
        longest: letters of the first column that a terminal shows.
        needed: columns for which a narrow terminal prints the first one, whole, on lines of its
            own; 1 where it is cut to `longest` letters instead.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    caption: str = ""
    form: Literal["wide", "dense", "matrix"] = "wide"
    left: int = 1
    longest: int = 60
    needed: int = 1

    def columns(self, begin: int, end: int | None = None) -> Table:
        """Return some columns of the table behind its first one."""
        rows = tuple((row[0], *row[begin:end]) for row in self.rows)
        return replace(self, heads=(self.heads[0], *self.heads[begin:end]), rows=rows)

    def shade(self, cell: str) -> int:
        """Return the share of a cell's number in the largest of the table, in tenths."""
        largest = max((_number(one) for row in self.rows for one in row[1:]), default=0) or 1
        return round(10 * _number(cell) / largest)


def _number(cell: str) -> float:
    return 0.0 if cell == NULL else float(cell)


@dataclass(frozen=True)
class Lines:
    """A list: of each item a name, shown bold and maybe empty, and a text.

    Attributes:
        links: addresses by name or text.
    """

    items: tuple[tuple[str, str], ...]
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """Names with short values."""

    items: tuple[tuple[str, str], ...]
    title: str = ""


@dataclass(frozen=True)
class Code:
    """A text as it was typed."""

    text: str
    title: str = ""


@dataclass(frozen=True)
class Tile:
    """One figure of a result, large, with what it was before."""

    label: str
    value: str
    before: str


@dataclass(frozen=True)
class Tiles:
    """The figures of a result."""

    items: tuple[Tile, ...]


@dataclass(frozen=True)
class GateLine:
    """One gate.

    Attributes:
        mark: `SKIP` where nothing was there to compare, so that nothing was decided.
        name: the gate's name.
        comparison: value and limit.
        stage: the stage that it is about.
        reason: why a value alone does not explain the outcome; may be empty.
    """

    mark: Mark
    name: str
    comparison: str
    stage: str
    reason: str


@dataclass(frozen=True)
class Gates:
    """The gates, those that were missed first."""

    items: tuple[GateLine, ...]


@dataclass(frozen=True)
class Legend:
    """What the two kinds of curves of the plots below are."""

    dashed: str
    solid: str


@dataclass(frozen=True)
class Bar:
    """A bar of a length in percent, and where its limit is, if that is near."""

    label: str
    value: str
    percent: float
    limit_percent: float | None = None
    kind: str = "measured"


@dataclass(frozen=True)
class BarGroup:
    """Bars on one scale."""

    title: str
    caption: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Beside:
    """Plots or bars, beside each other where there is room."""

    items: tuple[Plot | BarGroup, ...]


@dataclass(frozen=True)
class Fold:
    """Blocks that a reader opens."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def items(self) -> tuple[Block, ...]:
        """The blocks: what makes any block empty."""
        return self.blocks


Block: TypeAlias = (
    str | Table | Lines | Facts | Code | Tiles | Gates | Plot | Legend | Beside | Fold
)


@dataclass(frozen=True)
class Section:
    """A part of a page; without a title it goes on with what is above it."""

    title: str
    blocks: tuple[Block, ...]


def _filled(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Return the blocks that show something."""
    found: list[Block] = []
    for block in blocks:
        one = replace(block, blocks=_filled(block.blocks)) if isinstance(block, Fold) else block
        if one if isinstance(one, str) else getattr(one, "rows", getattr(one, "items", True)):
            found.append(one)
    return tuple(found)


def sections_of(parts: Iterable[tuple[str, Iterable[Block]]]) -> tuple[Section, ...]:
    """Return the sections that are not empty, of titles and blocks."""
    sections = (Section(title, _filled(blocks)) for title, blocks in parts)
    return tuple(section for section in sections if section.blocks)


@dataclass(frozen=True)
class Alert:
    """What a reader must see first: an error, or a warning (`careful`)."""

    tone: Tone
    name: str
    text: str
    hint: str = ""


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        kicker: the kind of page, above the title.
        title: what it is about; empty for a comment, which has the verdict alone.
        verdict: the outcome in a few words.
        lead: sentences below it.
        link: text and address of what the lead is about; empty without one.
        files: paths to print last, the most important at the end.
        more: where to find what a terminal has no room for.
    """

    kicker: str
    title: str
    verdict: str
    tone: Tone
    sections: tuple[Section, ...]
    lead: tuple[str, ...] = ()
    link: tuple[str, str] = ("", "")
    alerts: tuple[Alert, ...] = ()
    files: tuple[str, ...] = ()
    more: str = "in report.html"

    @property
    def name(self) -> str:
        """Title and verdict in one line."""
        return f"{self.title}: {self.verdict}" if self.title else self.verdict


# ---- terminal ----

_STYLES: Mapping[Mark, str] = {
    "PASS": "green",
    "FAIL": "bold red",
    "WARN": "yellow",
    "SKIP": "dim",
}
_TONES: Mapping[Tone, str] = {
    "good": "bold green",
    "bad": "bold red",
    "careful": "bold yellow",
    "neutral": "bold",
}
_WIDEST = 200


def print_page(page: Page, console: Console) -> None:
    """Print a page; warnings are not printed, they are for stderr."""
    printer = Printer(console)
    if page.title:
        printer.wrapped(page.name, "", _TONES[page.tone])
    for sentence in page.lead:
        printer.wrapped(sentence, "")
    if page.title or page.lead:
        printer.line("")
    for alert in page.alerts:
        if alert.tone == "bad":
            printer.line("error", "bold")
            printer.wrapped(f"{alert.name}: {alert.text}")
            printer.wrapped(f"hint: {alert.hint}" if alert.hint else "")
            printer.line("")
    for section in page.sections:
        if section.title:
            printer.line(section.title, "bold")
        for block in section.blocks:
            printer.block(block, "  " if section.title else "", page.more)
        printer.line("")
    if not page.title:
        printer.wrapped(page.verdict, "")
    for path in page.files:
        printer.line(path, "bold" if path == page.files[-1] else "dim")


class Printer:
    """Prints plain lines that no terminal, encoding or layer name can spoil."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.width = min(console.width, _WIDEST)

    def line(self, text: str, style: str = "") -> None:
        """Print one line as it is."""
        from rich.text import Text

        clean = Text(printable(text, self._console.encoding), style=style, no_wrap=True)
        self._console.print(clean, soft_wrap=True)

    def wrapped(self, text: str, indent: str = "  ", style: str = "") -> None:
        """Print a text over as many lines as it needs, indented."""
        for line in textwrap.wrap(
            printable(text, self._console.encoding),
            self.width,
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_on_hyphens=False,
        ):
            self.line(line, style)

    def block(self, block: Block, indent: str, more: str) -> None:
        """Print what a terminal shows of a block; `more` says where all of it is."""
        if isinstance(block, Table):
            if block.title and not indent:
                self.line(block.title, "bold")
            self.table(block, more)
        elif isinstance(block, str):
            self.wrapped(block, indent)
        elif isinstance(block, Lines):
            for name, text in block.items:
                self.wrapped(f"{name}: {text}" if name else text)
        elif isinstance(block, Gates):
            longest = max(len(one.name) for one in block.items)
            for one in block.items:
                text = f"{one.mark}  {one.name:<{longest}}  {one.comparison}  {one.stage}"
                reason = f": {one.reason}" if one.reason else ""
                self.wrapped(text + reason, style=_STYLES[one.mark])

    def table(self, table: Table, more: str = "") -> None:
        """Print as many columns of a table as fit, then its caption and the columns left out."""
        longest = table.longest
        cells = [list(column) for column in zip(table.heads, *table.rows, strict=True)]
        if table.needed == 1:
            cells[0] = [c if len(c) <= longest else f"{c[: longest - 3]}..." for c in cells[0]]
        widths = [max(map(len, column)) for column in cells]
        count, gap = fitting(widths, self.width)
        left, names, indent = table.left, list[str](), ""
        if count < min(table.needed, len(cells)):
            left, names, indent = left - 1, cells.pop(0), "  "
            widths = widths[1:]
            count, gap = fitting(widths, self.width - len(indent))
        for index, row in enumerate(zip(*cells[:count], strict=True)):
            style = "" if index else "bold"
            if names:
                self.wrapped(names[index], "", style)
            padded = [
                cell.ljust(width) if column < left else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths[:count], strict=True))
            ]
            self.wrapped((indent + (" " * gap).join(padded)).rstrip(), "", style)
        if table.caption:
            self.wrapped(table.caption, "", "dim")
        if more and count < len(cells):
            rest = ", ".join(column[0] for column in cells[count:])
            self.wrapped(f"more {more}: {rest}", "", "dim")


def printable(text: str, encoding: str) -> str:
    """Return text without control characters and without what the encoding cannot hold.

    Layer names and messages come from files; none may move a terminal's cursor or end a run.
    """
    clean = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
    try:
        "µ".encode(encoding)
    except UnicodeEncodeError:
        clean = clean.replace("µ", "u")
    return clean.encode(encoding, "replace").decode(encoding)


def fitting(widths: Sequence[int], width: int) -> tuple[int, int]:
    """Return how many columns of these widths fit into a line, from the left, and their gap."""
    for count in range(len(widths), 1, -1):
        for gap in (2, 1):
            if sum(widths[:count]) + gap * (count - 1) <= width:
                return count, gap
    return 1, 1


# ---- Markdown and HTML ----

_TEMPLATES = Path(__file__).parent / "templates"
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$])")
_LIST_MARK = re.compile(r"^(\s*\d*)([-+.)])(?=\s|$)")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ZERO_WIDTH_SPACE = "\u200b"
_CODE = re.compile(r"`([^`\n]+)`")


def to_markdown(page: Page) -> str:
    """Return a page as GitHub flavoured Markdown; every text is escaped."""
    return markdown("page.md", page=page)


def markdown(name: str, **values: object) -> str:
    """Return what a template of Markdown makes of values; every text is escaped."""
    text = template(name, _as_markdown).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def to_html(page: Page) -> str:
    """Return a page as a self-contained file: no script, no network; every text is escaped."""
    return template("page.html").render(page=page)


def to_fragment(page: Page, link: str) -> str:
    """Return a page's head, table and gates for a notebook.

    Args:
        page: the page.
        link: of the whole page; empty without one.
    """
    return template("notebook.html").render(page=page, link=link)


def _printable(value: object) -> object:
    """Return text without what no HTML or XML document may hold; markup stays as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in value
    )


def _as_markdown(value: object) -> Markup:
    from markupsafe import Markup

    return Markup(value if hasattr(value, "__html__") else escape(str(value)))


def escape(text: str) -> str:
    """Return text that GitHub shows as it is: no markup, HTML, table cell, mention or reference.

    A zero-width space parts `@` and `#` from what follows: entities and backslashes are gone once
    the text is rendered, and mentions are looked for in rendered text.
    """
    line = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
    line = _SPECIAL.sub(r"\\\1", line.translate(_HTML))
    line = _LIST_MARK.sub(r"\1\\\2", line)
    return line.replace("@", f"@{_ZERO_WIDTH_SPACE}").replace("\\#", f"\\#{_ZERO_WIDTH_SPACE}")


def _in_tag(text: str) -> Markup:
    """Return text for within an HTML tag of Markdown, where backslashes are shown."""
    from markupsafe import Markup

    return Markup(re.sub(r"\\(.)", r"\1", escape(text)))


def _marked(text: str) -> Markup:
    """Return a text with what stands between backticks set as code; all of it is escaped."""
    from markupsafe import Markup
    from markupsafe import escape as escaped

    return Markup(_CODE.sub(r"<code>\1</code>", str(escaped(_printable(text)))))


@functools.cache
def template(name: str, finalize: Callable[[object], object] = _printable) -> Template:
    """Return a template, in which every text goes through `finalize` and is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    environment.filters |= {"kind": lambda block: type(block).__name__}
    environment.filters |= {"marked": _marked, "in_tag": _in_tag}
    return environment.get_template(name)
