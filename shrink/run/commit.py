"""The commit that is checked out around a recipe."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def commit_of(folder: Path) -> str | None:
    """Return the commit that is checked out around a folder; None without a repository or git.

    Files that are changed and not committed do not show.
    """
    # A hook of git sets GIT_DIR; in a container the repository may belong to another user.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), "rev-parse", "--verify", "HEAD"]
    try:
        found = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
