"""Where a run's figures come from: the data, and the commit of the recipe's repository; light."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shrink.data.config import DataConfig
from shrink.report.outcome import StageOutcome

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LONGEST_REFS = 10_000_000


def describe_data(
    config: DataConfig, fingerprint: str, outcomes: Sequence[StageOutcome]
) -> dict[str, Any]:
    """Return what a report says of its data.

    Args:
        config: the `data` section; of its path only the last name is told, as a report travels.
        fingerprint: of what the source holds.
        outcomes: of the stages, the first finished one of which counted the examples.

    Returns:
        `source`, `path`, `fingerprint`; `examples` by split and `classes` by index, null where no
        stage came so far, as `classes` is where targets are real.
    """
    counted = (outcome.result.get("data") for outcome in outcomes)
    found: Mapping[str, Any] = next(filter(None, counted), {})
    return {
        "source": config.source,
        "path": Path(config.path).name if config.path else None,
        "fingerprint": fingerprint,
        "examples": found.get("examples"),
        "classes": found.get("classes"),
    }


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
        return _resolved(git, head)
    except (OSError, ValueError):
        return None


def _resolved(git: Path, head: str) -> str | None:
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
