"""Models as people save them pass the scan."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.model.scan import check_model_file
from tests.forks import call


@pytest.fixture(scope="module")
def benign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benign")
    call("tests.attacks.benign", "write", folder=str(folder))
    return folder


def test_check_model_file_passes_benign_models(benign: Path) -> None:
    paths = sorted(benign.iterdir())
    assert len(paths) >= 100
    for path in paths:
        check_model_file(path)
