"""The commit that is checked out around a recipe, read without git."""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LONGEST_REFS = 10_000_000


def commit_of(folder: Path) -> str | None:
    """Return the commit that is checked out around a folder, as hexadecimal digits.

    None where there is no git repository, or one that is not read without git's help; files that
    are changed and not committed do not show.
    """
    for place in (folder, *folder.parents):
        if (place / ".git").exists():
            return _head(place / ".git")
    return None


def _head(git: Path) -> str | None:
    try:
        if git.is_file():  # of a linked worktree or a submodule
            git = git.parent / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref:"):
            return head if _COMMIT.fullmatch(head) else None
        name = head.partition(":")[2].strip()
        common = git / "commondir"
        shared = git / common.read_text(encoding="utf-8").strip() if common.is_file() else git
        for root in (git, shared):
            if (root / name).is_file():
                found = (root / name).read_text(encoding="utf-8").strip()
                return found if _COMMIT.fullmatch(found) else None
        packed = shared / "packed-refs"
        if not packed.is_file() or packed.stat().st_size > _LONGEST_REFS:
            return None
        lines = (line.split() for line in packed.read_text(encoding="utf-8").splitlines())
        return next((line[0] for line in lines if line[1:] == [name]), None)
    except (OSError, ValueError):
        return None
