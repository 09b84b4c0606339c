"""Work that several test processes need, done by the first that asks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that all processes of this test session share.

    Args:
        factory: of temporary folders.
        name: of the folder.
        make: fills the empty folder; called by one process, while the others wait.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with folder.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.with_name(f"{name}.made")
        if not done.exists():
            make(folder)
            done.touch()
    return folder
