"""One-off jobs in a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shrink.base.console import Console
from shrink.base.errors import InternalError, ModelError
from shrink.contract.codec import to_plain
from shrink.contract.findings import Bench, Examination, StorePlace, Worked
from shrink.contract.job import BenchJob, CompactJob, DoctorJob, InspectJob
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
        tool.run_action(DoctorJob(name="net.tflite"), Worked, Console())


def test_run_action_refuses_an_answer_of_another_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tool, "run_worker", lambda *_: {"path": "m.tflite", "p50_ms": "fast"})
    job = DoctorJob(name="m.tflite")
    with pytest.raises(InternalError, match=r"no Bench: p50_ms: expected a number") as caught:
        tool.run_action(job, Bench, Console())
    assert caught.value.exit_code == 70
    assert caught.value.subject == "m.tflite"


@pytest.mark.parametrize(("extras", "line"), [((), "none"), (("lmdb", "tiles"), "lmdb, tiles")])
def test_an_examination_lists_the_extras(extras: tuple[str, ...], line: str) -> None:
    store = StorePlace(path="cache", free_bytes=0, writable=True)
    known: dict[str, Any] = dict.fromkeys(
        ("shrink", "installed", "python", "system", "machine"), ""
    )
    known |= {"memory_limit_bytes": None, "packages": {}, "variables": {}}
    found = Examination(**known, extras=extras, store=store)
    assert f"- extras: {line}" in tool.lines_of(found)


def test_a_file_of_2020_that_litert_refuses_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.tflite"
    path.write_bytes(as_of_2020(chain()))
    source = ModelSource(kind="tflite", path=path)
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tool, "run_worker", lambda *_: to_plain(Worked()))
    job = CompactJob(name="old", model=source, target=path, runtime="tflm", arguments={})
    assert tool.run_tool(job, Worked, Console()) == Worked()
    assert tool.run_tool(InspectJob(name="old", model=source), Worked, Console()) == Worked()
    assert tool.run_tool(BenchJob(name="old", model=source), Worked, Console()) == Worked()


def test_a_file_that_no_runtime_takes_is_not_inspected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.tflite"
    path.write_bytes(as_of_2020(chain()).replace(b"TFL3", b"TFL2"))
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tool, "run_worker", lambda *_: to_plain(Worked()))
    job = InspectJob(name="old", model=ModelSource(kind="tflite", path=path))
    with pytest.raises(ModelError):
        tool.run_tool(job, Worked, Console())
