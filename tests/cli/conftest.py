"""One real run of every stage, shared by all tests that look at what a run leaves behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from shrink.recipe.bundle import bundled_root
from tests.cli.shell import shrink
from tests.forks import MEASURED
from tests.sharing import made_once

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

    def into(self, folder: Path) -> tuple[str, ...]:
        """Return the words that run the recipe again, into another folder."""
        return *self.arguments[:3], str(folder), *self.arguments[4:]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """Run train, distill, prune and quantize on the digits, once for all test processes."""
    recipe = bundled_root() / "recipes" / "digits.yaml"
    arguments = ("run", str(recipe), "--output", "out", *SHORT)

    def make(cwd: Path) -> None:
        done = shrink(*arguments, cwd=cwd, store=cwd / "store", measured=MEASURED)
        printed = json.dumps([done.stdout, done.stderr])
        (cwd / "printed.json").write_text(printed, encoding="utf-8")

    cwd = made_once(tmp_path_factory, "a folder with späces", make)
    stdout, stderr = json.loads((cwd / "printed.json").read_text(encoding="utf-8"))
    return FinishedRun(cwd / "out", cwd / "store", cwd, recipe, arguments, stdout, stderr)
