"""A store of its own for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what data sets store out of the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHRINK_CACHE_DIR", str(tmp_path_factory.mktemp("store")))
        yield
