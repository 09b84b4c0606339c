"""Two runs of one recipe on one empty store at the same time, shared by all tests of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.tiny import TinyRun, run_together, write_recipe
from tests.sharing import made_once


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyRun, TinyRun]:
    """Return two finished runs, each with its folder, that shared a store from its beginning."""

    def make(root: Path) -> None:
        write_recipe(root)
        assert run_together(*(TinyRun(root, output) for output in outputs)) == [0, 0]

    outputs = ("out", "other-out")
    root = made_once(tmp_path_factory, "twins", make)
    return TinyRun(root, outputs[0]), TinyRun(root, outputs[1])


@pytest.fixture(scope="session")
def reference(twins: tuple[TinyRun, TinyRun]) -> TinyRun:
    """Return a finished run that nothing disturbed."""
    return twins[0]
