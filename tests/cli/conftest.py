"""One real run of every stage, shared by all tests that look at what a run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from shrink.bundle import bundled_root
from tests.cli.shell import shrink

SHORT = (
    *("--set", "train.epochs=4"),
    *("--set", "distill.epochs=3"),
    *("--set", "prune.epochs=1"),
    *("--set", "gates.accuracy_drop=0.9"),
)


@dataclass(frozen=True)
class FinishedRun:
    """A finished run of recipes/digits.yaml with few epochs."""

    folder: Path
    store: Path
    cwd: Path
    recipe: Path
    arguments: tuple[str, ...]
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """Run train, distill, prune and quantize on the digits."""
    cwd = tmp_path_factory.mktemp("a folder with späces")
    recipe = bundled_root() / "recipes" / "digits.yaml"
    arguments = ("run", str(recipe), "--output", "out", *SHORT)
    done = shrink(*arguments, cwd=cwd, store=cwd / "store")
    return FinishedRun(cwd / "out", cwd / "store", cwd, recipe, arguments, done.stdout, done.stderr)
