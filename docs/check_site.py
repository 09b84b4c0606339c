"""Builds the site strictly and looks at what came out.

Run: python -m docs.check_site [FOLDER]

In the folder, or a temporary one. Fails where a page is missing from the navigation, a link or an
anchor leads nowhere, a page loads something from elsewhere, or a list or table of a page is not the
one that GitHub shows.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
_COMPARED = ("li", "table", "tr", "pre", "h2", "h3", "blockquote")
_LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class _Page(HTMLParser):
    """What a page links to, loads, and can be linked to by."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where a tag leads."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if target := given.get(_LOADS.get(tag, "")):
            self.loads.append(target)


def problems(folder: Path) -> Iterator[str]:
    """Yield what is wrong with a built site."""
    pages = {path: _read(path) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder)
        if name.name == "404.html":  # its links start from the server's root
            continue
        for target in page.loads:
            if urlsplit(target).scheme not in ("", "data"):
                yield f"{name}: loads {target}"
        for target in (*page.links, *page.loads):
            parts = urlsplit(target)
            if parts.scheme:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.is_file():
                yield f"{name}: {target} is not there"
            elif there in pages and parts.fragment:
                known = pages[there].anchors
                if not {parts.fragment, unquote(parts.fragment)} & known:
                    yield f"{name}: {target} has no such anchor"


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def unlike_github(folder: Path) -> Iterator[str]:
    """Yield the pages whose lists, tables, code or headings GitHub shows in another number."""
    github = MarkdownIt("commonmark").enable("table")
    for source in sorted((ROOT / "docs").rglob("*.md")):
        name = source.relative_to(ROOT / "docs").as_posix()
        built = folder / (re.sub("README$", "index", name.removesuffix(".md")) + ".html")
        if not built.is_file():  # excluded in mkdocs.yml
            continue
        html = built.read_text(encoding="utf-8")
        shown = _counted(html[html.index("<article") : html.index("</article>")])
        wanted = _counted(github.render(source.read_text(encoding="utf-8")))
        if shown != wanted:
            yield f"{name}: {dict(shown)}, on GitHub {dict(wanted)}"


def _counted(html: str) -> Counter[str]:
    return Counter({tag: len(re.findall(rf"<{tag}[ >]", html)) for tag in _COMPARED})


def main() -> int:
    """Build, check, and return the exit code."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary).resolve()
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", folder]
        quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        if subprocess.run(command, cwd=ROOT, env=quiet, check=False).returncode:
            return 1
        found = [*problems(folder), *unlike_github(folder)]
        sys.stdout.write("".join(f"{line}\n" for line in found))
        sys.stdout.write(f"{len([*folder.rglob('*.html')])} pages, {len(found)} problems\n")
        return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
