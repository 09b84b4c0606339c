"""The README's file tree and commands are true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def tree() -> str:
    return README.partition("## The code")[2].partition("```")[2].partition("```")[0]


def test_tree_names_every_folder_of_the_package() -> None:
    rooms = {p.parts[1] for p in tracked() if p.parts[0] == "shrink" and len(p.parts) > 2}
    missing = [room for room in rooms if f"{room}/" not in tree()]
    assert missing == []
    stages = {p.parts[2] for p in tracked() if p.parts[:2] == ("shrink", "stages")}
    folders = [name for name in stages if (ROOT / "shrink" / "stages" / name).is_dir()]
    assert [name for name in folders if f"{name}/" not in tree()] == []


def test_tree_names_nothing_that_is_not_there() -> None:
    known = {part for path in tracked() for part in path.parts}
    names = re.findall(r"(?<!\S)([\w.-]+/|[\w-]+\.(?:py|md|toml|json))(?=\s|$|:)", tree())
    assert len(names) > 20
    assert [name for name in names if name.rstrip("/") not in known] == []


def blocks() -> list[str]:
    """Return the lines of all fenced blocks that call shrink, comments and pipes cut off."""
    fenced = re.findall(r"```\n(.*?)```", README, flags=re.DOTALL)
    lines = [line.strip() for block in fenced for line in block.splitlines()]
    calls = [line.rpartition("&& ")[2] for line in lines]
    return [re.split(r"\s[#>|]", call)[0] for call in calls if call.startswith("shrink ")]


@pytest.mark.parametrize("call", blocks())
def test_commands_of_the_readme_exist_with_their_flags(call: str) -> None:
    words = call.split()
    if words[1] == "COMMAND":
        return
    done = subprocess.run(
        [sys.executable, "-P", "-m", "shrink", words[1], "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    for flag in (word for word in words if word.startswith("--")):
        assert re.search(rf"{flag}\b", done.stdout), f"{call}: no {flag}"
