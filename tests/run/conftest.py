"""Two runs of one recipe on one empty store at the same time, shared by all tests of runs."""

from __future__ import annotations

import pytest

from tests.run.tiny import TinyRun, finish, write_recipe


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[TinyRun, TinyRun]:
    """Return two finished runs, each with its folder, that shared a store from its beginning."""
    root = tmp_path_factory.mktemp("twins")
    write_recipe(root)
    runs = (TinyRun(root), TinyRun(root, "other-out"))
    processes = [run.start() for run in runs]
    assert [finish(process) for process in processes] == [0, 0]
    return runs


@pytest.fixture(scope="session")
def reference(twins: tuple[TinyRun, TinyRun]) -> TinyRun:
    """Return a finished run that nothing disturbed."""
    return twins[0]
