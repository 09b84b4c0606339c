"""Plain English: phrases that readers stumble over stay out of messages, help, README and docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BANNED = {
    r"\boftener\b": "more often",
    r"\bby turns\b": "in turns, alternately",
    r"\bin words of\b": "plain English",
    r"\bas it came out\b": "as measured",
    r"\bof which there (is|are) no": "say what is missing",
    r"\bto be had\b": "supported, possible",
    r"\bnobody\b": "name the actor, or what is missing",
    r"\bcame trained\b": "was already trained",
    r"\bflatter(s|ed)?\b": "is optimistic",
    r"\bstood upright\b": "rewritten as Nx1",
    r"\blight half\b": "the CLI process, light packages",
    r"\bchance explains\b": "within chance",
    r"\bis there already\b": "file exists",
    r"\b(was|were|is|are) asked for\b": "requested",
    r"\bis told (by|from)\b": "is reported by, follows from",
    r"\blearnt again\b": "recovered by fine-tuning",
    r"\bthe store\b": "the cache",
    r"\bmade again\b": "repeated",
    r"\bgone on with\b": "continued",
    r"\bthan guessing\b": "than chance level",
    r"\bdecided (class|one)\b": "predicted",
    r"\bmade-up inputs\b": "random inputs",
}
"""Each phrase, and what to write in its place."""
SKIPPED = {"decisions.md", "upgrading.md"}
"""Logs, in which earlier names and words stay."""
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "skills").rglob("*.md"),
    *(page for page in (ROOT / "docs").rglob("*.md") if page.name not in SKIPPED),
]


def found(text: str) -> Iterator[str]:
    """The banned phrases of a text, each with its words around it and the plain ones."""
    for pattern, plain in BANNED.items():
        for match in re.finditer(pattern, text):
            yield f"{text[max(0, match.start() - 40) : match.end() + 20]!r}: write {plain}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_are_plain(page: Path) -> None:
    if page.name != "CHANGELOG.md":
        assert list(found(page.read_text("utf-8"))) == []


def test_messages_and_help_are_plain() -> None:
    problems = []
    for path in sorted((ROOT / "shrink").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        documented = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in documented:
                continue
            if isinstance(node.value, str) and " " in node.value.strip():
                problems += [f"{path.name}:{node.lineno}: {one}" for one in found(node.value)]
    assert problems == []


def test_banned_phrases_are_found() -> None:
    (one,) = found("the model came trained, and on what is not known")
    assert "was already trained" in one
    assert list(found("The model was already trained.")) == []
