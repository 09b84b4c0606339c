"""Runs shrink: as a user does, or in children of a process that has TensorFlow imported.

The second leaves out the figures that no oracle can recompute, memory of inference and latency.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import forks

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    printed: str


def run_cli(arguments: Sequence[str], cwd: Path, store: Path) -> Done:
    """Run `python -m shrink` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "shrink", *arguments],
        cwd=cwd,
        env=_environment(store),
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout + done.stderr)


def _environment(store: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "KERAS", "GITHUB_"))}
    path = f"{ROOT}{os.pathsep}{kept.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    return {**kept, "SHRINK_CACHE_DIR": str(store), "NO_COLOR": "1", "PYTHONPATH": path}


class Fork:
    """Runs one command after the other, in children of a process that did the imports."""

    def __init__(self, store: Path) -> None:
        self._environment = _environment(store)

    def run(self, arguments: Sequence[str], cwd: Path) -> Done:
        """Run a command."""
        words = [*map(str, arguments)]
        done = forks.run(words, cwd, self._environment, measured=[forks.ARENA])
        return Done(done.returncode, done.stdout + done.stderr)
