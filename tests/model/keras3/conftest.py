"""Models of Keras 3, written once by a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import forks
from tests.sharing import made_once


def write_zoo(folder: Path, every: int = 1) -> None:
    forks.call("tests.model.keras3.zoo", "write_all", folder=str(folder), every=every)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with NAME.keras and NAME.npz for a twelfth of the zoo and all its larger models."""
    return made_once(tmp_path_factory, "keras3", lambda folder: write_zoo(folder, 12))
