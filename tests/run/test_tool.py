"""One-off jobs in a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrink.base.console import Console
from shrink.base.errors import ModelError
from shrink.contract.job import DoctorJob
from shrink.run import tool


def test_run_action_names_what_it_is_about_when_the_worker_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise ModelError("not a TFLite model")

    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tool, "run_worker", refuse)
    with pytest.raises(ModelError, match=r"net\.tflite: not a TFLite model"):
        tool.run_action(DoctorJob(name="net.tflite"), Console())
