"""The tutorials: each goes through from its first line to its last, in an empty folder."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shrink.recipe.bundle import bundled_root
from tests.cli.shell import environment, shrink
from tests.forks import ARENA
from tests.test_docs import DOCS, PAGES, TUTORIALS, blocks

CLI = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorials_go_through(page: Path, tmp_path: Path, store: Path) -> None:
    for name in ("recipes", "models"):
        shutil.copytree(bundled_root() / name, tmp_path / name)
    for language, content in blocks(page):
        if language == "python":
            script = tmp_path / content.removeprefix("# ").partition(":")[0]
            script.write_text(content, encoding="utf-8")
            if script.name.startswith("make_"):
                command = [sys.executable, str(script)]
                subprocess.run(command, cwd=tmp_path, env=environment(store), check=True)
        if language.startswith("console"):
            for line in content.splitlines():
                _, *words = shlex.split(line.removeprefix("$ "))
                expect = _exit_code(language)
                shrink(*words, cwd=tmp_path, store=store, expect=expect, measured=[ARENA])


def _exit_code(language: str) -> int:
    return int(language.partition("exit ")[2] or 0)


def test_programs_of_tutorials_say_which_file_they_are() -> None:
    found = [text for page in TUTORIALS for kind, text in blocks(page) if kind == "python"]
    assert found
    for text in found:
        assert re.match(r"# \w+\.py: ", text)
        compile(text, "a tutorial", "exec")


def test_exit_codes_are_read_from_the_kind_of_a_block() -> None:
    assert _exit_code("console slow") == 0
    assert _exit_code("console slow exit 1") == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_flags_that_there_are(page: Path) -> None:
    for language, content in blocks(page):
        for line in content.splitlines() if language.startswith("console") else ():
            _, *words = shlex.split(line.removeprefix("$ "))
            flags = {word.partition("=")[0] for word in words if word.startswith("-")} - {"-"}
            assert flags <= {*_flags(words), "--help", "--version"}, line


def _flags(words: list[str]) -> set[str]:
    """Return the flags of the command, by the page that is made from it."""
    for name in (" ".join(words[:2]), words[0]):
        section = CLI.partition(f"## shrink {name}\n")[2].partition("\n## ")[0]
        if section:
            return set(re.findall(r"`(--?[a-z0-9-]+)`", section))
    return set()
