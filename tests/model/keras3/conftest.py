"""Models of Keras 3, written once by a process in which Keras 3 is Keras."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sharing import made_once


def write_with_keras3(script: str, folder: Path, *arguments: str) -> None:
    """Run a script of this folder without tf-keras' switch."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    command = [sys.executable, str(Path(__file__).with_name(script)), str(folder), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with NAME.keras and NAME.npz for a sixth of the zoo and all its larger models."""

    def make(folder: Path) -> None:
        write_with_keras3("zoo.py", folder, "6")

    return made_once(tmp_path_factory, "keras3", make)
