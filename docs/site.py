"""Hooks of MkDocs: files beside docs/ that its pages link to, and Markdown as GitHub reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_FOLDER = "project"
"""Where the site has what is outside of docs/."""
_LINK = re.compile(r"(\]\()(?![a-z]+:|#|/)([^)#\s]+)")
_CONSOLE = re.compile(r"^(\s*)```console[a-z0-9 ]*$\n(.*?)^\s*```$", re.MULTILINE | re.DOTALL)
_AFTER_TABLE = re.compile(r"^( *\|.*\|)$\n(?=[ ]*- )", re.MULTILINE)
_ITEM = re.compile(r"(-|\d+\.) ")
_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository that pages link to."""
    from mkdocs.structure.files import File

    for path in outside():
        place = f"{_FOLDER}/{path}"
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page for Python-Markdown, its links leading into the site."""
    return with_links(as_python_markdown(markdown), page.file.src_uri)


def as_python_markdown(markdown: str) -> str:
    """Return what Python-Markdown reads as GitHub reads the given text."""
    lines = "\n".join(_indented(_CONSOLE.sub(_without_prompts, markdown).splitlines()))
    return _AFTER_TABLE.sub(r"\1\n\n", lines)


def _without_prompts(match: re.Match[str]) -> str:
    """Return a block of commands as the copy button should copy it."""
    commands = re.sub(r"^(\s*)\$ ", r"\1", match[2], flags=re.MULTILINE)
    return f"{match[1]}```bash\n{commands}{match[1]}```"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    """Indent what belongs to an item of a list by four, for Python-Markdown; GitHub needs two."""
    fence, more, in_list, starts_block, has_parts = "", 0, False, True, False
    for line in lines:
        bare = line.lstrip(" ")
        depth = len(line) - len(bare)
        if not fence and _ITEM.match(bare) and has_parts and not starts_block:
            yield ""  # else it would go on with the paragraph before it
        has_parts = not bare or (has_parts and not _ITEM.match(bare))
        if not fence and bare and depth == 0:
            in_list = bool(_ITEM.match(bare)) or (in_list and not starts_block)
        if not fence:
            more = 0 if not (in_list and depth) else (4 if depth < 4 else 8) - depth
        if bare.startswith("```"):
            fence = "" if fence else bare
        starts_block = not bare
        yield " " * more + line if bare else line


def outside() -> list[str]:
    """Return the files outside of docs/ that pages link to, and what those link to."""
    found: dict[str, None] = {}
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    waiting = [*sorted(pages), "CONTRIBUTING.md", "CHANGELOG.md", "recipes/README.md"]
    while waiting:
        page = waiting.pop(0)
        if not page.startswith("docs/"):
            found[page] = None
        if page.endswith(".md"):
            linked = (_joined(page, target) for target in _targets(ROOT / page))
            waiting += [one for one in linked if not one.startswith("docs/") and one not in found]
    return [path for path in found if (ROOT / path).is_file()]


def with_links(markdown: str, place: str) -> str:
    """Return the text of a page with links between docs/ and the rest as they are in the site.

    Args:
        markdown: the page.
        place: the page's path in the site's source.
    """
    is_outside = place.startswith(f"{_FOLDER}/")
    source = place.removeprefix(f"{_FOLDER}/") if is_outside else f"docs/{place}"

    def moved(match: re.Match[str]) -> str:
        target = _joined(source, match[2])
        if target == "docs/decisions.md":  # the log is not on the site, the records are
            target = "docs/decisions/README.md"
        new = target.removeprefix("docs/") if target.startswith("docs/") else f"{_FOLDER}/{target}"
        return match[1] + os.path.relpath(new, PurePosixPath(place).parent)

    return _LINK.sub(moved, markdown)


def _targets(page: Path) -> list[str]:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    return [match[2] for match in _LINK.finditer(text)]


def _joined(page: str, target: str) -> str:
    return os.path.normpath(PurePosixPath(page).parent / target)
