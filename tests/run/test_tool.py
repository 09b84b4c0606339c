"""One-off jobs in a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrink.base.console import Console
from shrink.base.errors import ModelError
from shrink.contract.job import BenchJob, CompactJob, DoctorJob
from shrink.contract.model_source import ModelSource
from shrink.run import tool
from tests.compact.toys import as_of_2020, chain


def test_run_action_names_what_it_is_about_when_the_worker_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise ModelError("not a TFLite model")

    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tool, "run_worker", refuse)
    with pytest.raises(ModelError, match=r"net\.tflite: not a TFLite model"):
        tool.run_action(DoctorJob(name="net.tflite"), Console())


def test_a_file_that_litert_refuses_may_be_compacted_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.tflite"
    path.write_bytes(as_of_2020(chain()))
    source = ModelSource(kind="tflite", path=path)
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tool, "run_worker", lambda *_: "ran")
    job = CompactJob(name="old", model=source, target=path, arena_bytes=None, max_extra_macs=0.05)
    assert tool.run_tool(job, Console()) == "ran"
    with pytest.raises(ModelError, match="quantized_dimension"):
        tool.run_tool(BenchJob(name="old", model=source), Console())
