"""Benchmarks that the documentation names exist, and say of themselves how they are run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
LOGS = {ROOT / "docs" / "decisions.md", ROOT / "CHANGELOG.md"}
"""They may name what was removed since."""
PAGES = {*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.py")} - LOGS
PAGES |= {*ROOT.glob("docs/explanations/*.md"), *ROOT.glob("shrink/**/*.py")}
NAMED = re.compile(r"(?:benchmarks\.|`)(bench_\w+)(?:\s+([a-z]+)\b)?")


def usage(path: Path) -> str:
    """Return the words of a benchmark's docstring, in one line."""
    return " ".join((ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split())


def test_documented_benchmarks_exist() -> None:
    named = [match for page in PAGES for match in NAMED.finditer(page.read_text("utf-8"))]
    files = {path.stem: usage(path) for path in FOLDER.glob("bench_*.py")}
    assert len({match[1] for match in named}) > 5
    assert {match[1] for match in named} <= files.keys()
    for match in named:
        several = re.findall(rf"-m tests\.benchmarks\.{match[1]} ([a-z]+)", files[match[1]])
        if several:
            assert match[2] in several, match.group()


def test_benchmarks_say_how_they_are_run() -> None:
    for path in FOLDER.glob("bench_*.py"):
        assert f"python -m tests.benchmarks.{path.stem}" in usage(path), path.name
