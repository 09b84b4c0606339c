"""Models as people save them pass the scan."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shrink.model.scan import check_model_file


@pytest.fixture(scope="module")
def benign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benign")
    script = Path(__file__).with_name("benign.py")
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_check_model_file_passes_benign_models(benign: Path) -> None:
    paths = sorted(benign.iterdir())
    assert len(paths) >= 100
    for path in paths:
        check_model_file(path)
