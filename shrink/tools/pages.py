"""The documentation as it is installed: its pages, and what each says of a name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from shrink.base.errors import RecipeError, ResourceError, hint_for
from shrink.recipe.bundle import bundled_root

ADDRESS = "SHRINK_DOCS_URL"
"""The environment variable with the address at which a team keeps its copy of the site."""
_FENCE = re.compile(r"^ *```")
_HEADING = re.compile(r"^(#{1,4}) (.+)$")
_CELL = re.compile(r"^\| (`[^|]+`[^|]*)\|")
_NAME = re.compile(r"`([^`]+)`")
_CODE = re.compile(r"^(?:exit[ -]?)?(?:code )?(\d{1,3})$")
_SPECIFIC = re.compile(r"[A-Za-z][\w.-]*[._-][\w.-]*\w|[A-Z][a-z]+[A-Z]\w+")
_FIRST = (
    *("reference/errors.md", "reference/figures.md", "metrics.md", "losses.md"),
    *("recipe.md", "reference/cli.md", "quantize.md", "report.md"),
)
"""Pages whose tables are asked first for a name that several have."""
_LAST = ("decisions.md", "reference/python.md", "reference/report-json.md")


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        page: its path below docs/, such as `quantize.md`.
        title: the heading.
        text: the Markdown from the heading to the next one that is no deeper.
        is_page: whether it is the whole page.
    """

    page: str
    title: str
    text: str
    is_page: bool

    @property
    def anchor(self) -> str:
        """The fragment of the section's address, as the site has it; empty for a whole page."""
        if self.is_page:
            return ""
        plain = re.sub(r"[^\w\s-]", "", self.title).strip().lower()
        return "#" + re.sub(r"[-\s]+", "-", plain)


@dataclass(frozen=True)
class Pages:
    """The pages below a folder."""

    folder: Path

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """All sections, those of the pages that are asked first before the others."""
        names = [path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.md")]
        names.sort(key=lambda name: (name in _LAST, name not in _FIRST, _rank(name), name))
        return tuple(one for name in names for one in _sections(self.folder / name, name))

    @cached_property
    def topics(self) -> Mapping[str, Section]:
        """What can be asked for, folded, and the section that is shown."""
        found: dict[str, Section] = {}
        for one in self.sections:
            if one.is_page:
                found.setdefault(_folded(Path(one.page).stem), one)
        for one in self.sections:
            for name in _names(one):
                found.setdefault(_folded(name), one)
        for one in self.sections:
            found.setdefault(_folded(re.sub(r"[`*]", "", one.title)), one)
        return found

    def find(self, topic: str) -> Section:
        """Return the section about a page, command, key, figure, error, warning or exit code.

        A whole message will do: the first name in it that is known.

        Raises:
            RecipeError: nothing is said of it under this name.
        """
        if code := _CODE.match(topic.strip().lower()):
            topic = "errors" if code[1] in self._codes else topic
        known = self.topics
        for name in (topic, topic.removeprefix("shrink "), f"shrink {topic}"):
            if (found := known.get(_folded(name))) is not None:
                return found
        for word in _SPECIFIC.findall(topic) if " " in topic.strip() else ():
            for name in (word, word.rpartition(".")[2]):
                if (found := known.get(_folded(name))) is not None:
                    return found
        raise RecipeError(
            f"no page, key, command, figure or error is called {topic!r}",
            subject="shrink docs",
            hint=_hint(topic, known),
        )

    @cached_property
    def _codes(self) -> frozenset[str]:
        (page,) = [s for s in self.sections if s.page == "reference/errors.md" and s.is_page]
        return frozenset({"0", "1", *re.findall(r"\| (\d+) \|", page.text)})

    def address(self, section: Section) -> str | None:
        """Return where a browser finds a section; None where there is no built site."""
        path = re.sub(r"README$", "index", section.page.removesuffix(".md")) + ".html"
        base = os.environ.get(ADDRESS, "").rstrip("/")
        if base:
            return f"{base}/{path}{section.anchor}"
        built = self.folder.parent / "site" / path
        return built.as_uri() + section.anchor if built.is_file() else None


def installed_pages() -> Pages:
    """Return the pages that came with shrink.

    Raises:
        ResourceError: the installation has none.
    """
    folder = bundled_root() / "docs"
    if not (folder / "recipe.md").is_file():
        raise ResourceError("the documentation is not installed", subject=folder)
    return Pages(folder)


def _hint(topic: str, known: Mapping[str, Section]) -> str:
    near = hint_for(topic, known)
    return near if near.startswith("did you mean") else "`shrink docs` lists the pages"


def _rank(name: str) -> int:
    return _FIRST.index(name) if name in _FIRST else 0


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


def _sections(path: Path, name: str) -> Iterator[Section]:
    text = path.read_text(encoding="utf-8")
    lines, starts, fenced = text.splitlines(), [], False
    for number, line in enumerate(lines):
        fenced ^= bool(_FENCE.match(line))
        if not fenced and (heading := _HEADING.match(line)):
            starts.append((number, len(heading[1]), heading[2].strip()))
    for place, (number, depth, title) in enumerate(starts):
        ends = [n for n, d, _ in starts[place + 1 :] if d <= depth]
        part = "\n".join(lines[number : ends[0] if ends else None]).strip()
        yield Section(name, title, part, is_page=place == 0)


def _names(section: Section) -> Iterator[str]:
    """Yield the names that a section's own tables explain, keys of a recipe with their section."""
    prefix = _NAME.search(section.title)
    # Of a page what stands above its first section: each of these has its own.
    text = section.text.partition("\n## ")[0] if section.is_page else section.text
    for line in text.splitlines():
        if cell := _CELL.match(line):
            for name in _NAME.findall(cell[1]):
                if prefix and section.page == "recipe.md":
                    yield f"{prefix[1]}.{name}"
                yield name
