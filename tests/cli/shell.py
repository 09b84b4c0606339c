"""The command line: as a user has it, or without the seconds that imports take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests import forks


def shrink(
    *arguments: str | Path,
    cwd: Path,
    store: Path,
    expect: int = 0,
    env: Mapping[str, str] | None = None,
    fresh: bool = False,
    measured: Collection[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `shrink` and check its exit code.

    Args:
        arguments: the words after `shrink`.
        cwd: where to run it.
        store: its store.
        expect: the exit code.
        env: more environment.
        fresh: with an interpreter of its own and another for each worker, as a user does, where
            environment and streams matter as these start; else both are children of a process
            that has done the imports.
        measured: of `forks.MEASURED`, what to measure of artifacts; all of it with `fresh`.
    """
    if fresh:
        done = subprocess.run(
            command(*arguments),
            cwd=cwd,
            env=environment(store, env),
            capture_output=True,
            text=True,
            check=False,
        )
    else:
        done = forks.run([*map(str, arguments)], cwd, environment(store, env), measured=measured)
    assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def command(*arguments: str | Path) -> list[str]:
    """Return the words that start `shrink` with this interpreter."""
    return [sys.executable, "-P", "-m", "shrink", *map(str, arguments)]


def environment(store: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with a store of its own, without this process's TensorFlow settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "KERAS", "GITHUB_"))}
    return {**kept, "SHRINK_CACHE_DIR": str(store), "NO_COLOR": "1", **(more or {})}


def read_report(folder: Path) -> dict[str, Any]:
    """Return a run folder's report."""
    report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return report


def stage(report: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return one stage of a report."""
    return next(s for s in report["stages"] if s["name"] == name)
