from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrink.base import forkserver as preloaded
from shrink.base import host
from shrink.base.console import Console
from shrink.base.errors import StageError
from shrink.contract.findings import Worked
from shrink.run import tool as doctor
from tests.cli.shell import read_report, shrink
from tests.cli.toy import write_toy

WORKED = Worked(
    devices=("CPU:0",),
    tensorflow_import_s=2.5,
    training_step_s=0.4,
    host_peak_bytes=600_000_000,
    limits=("the arena will be missing",),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setenv("SECRET_TOKEN", "hidden")
    return tmp_path


def answering(monkeypatch: pytest.MonkeyPatch, *problems: str) -> None:
    def run(*_: Any) -> Worked:
        return replace(WORKED, problems=problems)

    monkeypatch.setattr(doctor, "run_action", run)
    monkeypatch.setattr(doctor, "preloading_refused", preloaded.switched_off)


def test_examine_tells_what_a_report_needs_and_nothing_personal(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch)
    found = doctor.examine(Console(quiet=True))
    text = "\n".join(doctor.lines_of(found))
    assert found.store.path == "~/store"
    assert str(home) not in text
    assert "hidden" not in text
    for words in ("- tensorflow: 2.", "TF_ENABLE_ONEDNN_OPTS: 0", "devices: CPU:0", "- limit: "):
        assert words in text
    assert found.problems == ()
    assert text.endswith("No problems found.")


@pytest.mark.parametrize(
    ("card", "used", "hidden", "warned"),
    [
        ("/dev/nvidia0", False, None, True),
        ("/dev/nvidia0", True, None, False),
        ("/dev/nvidia0", False, "-1", False),
        ("/dev/kfd", False, None, False),
        ("", False, None, False),
    ],
)
def test_an_nvidia_card_that_tensorflow_does_not_list_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, card: str, used: bool, hidden: str | None, warned: bool
) -> None:
    monkeypatch.setattr(host, "gpu_device", lambda: card)
    monkeypatch.setattr(host, "_NVIDIA_CARDS", Path("/nowhere"))
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert bool(host.unused_gpu(used)) == warned


def test_doctor_and_training_warn_of_an_unused_card(tmp_path: Path) -> None:
    fake = tmp_path / "bin/nvidia-smi"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    more = {"PATH": f"{fake.parent}{os.pathsep}{os.environ['PATH']}"}
    done = shrink("doctor", cwd=tmp_path, store=tmp_path / "store", expect=5, env=more)
    assert "PROBLEM: this machine has an NVIDIA GPU" in done.stdout
    assert 'pip install "tensorflow[and-cuda]"' in done.stdout
    write_toy(tmp_path)
    shrink("run", "toy.yaml", cwd=tmp_path, store=tmp_path / "store", env=more)
    report = read_report(tmp_path / "runs/toy")
    assert "unused-gpu" in {one["code"] for one in report["warnings"]}


def test_examine_tells_of_a_worker_that_fails(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> Worked:
        raise StageError("TensorFlow does not start")

    monkeypatch.setattr(doctor, "run_action", run)
    found = doctor.examine(Console(quiet=True))
    assert found.problems == ("a worker fails: TensorFlow does not start",)
    assert "- PROBLEM: a worker fails: TensorFlow does not start" in doctor.lines_of(found)


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ("pydantic<3,>=2.11", None),
        ("pydantic>=2.11,<3", None),
        ("pydantic", None),
        ("pydantic>=99", "is not what shrink needs"),
        ("pydantic<2,>=1", "is not what shrink needs"),
        ("no-such-package-at-all>=1", "is missing"),
    ],
)
def test_unmet_reads_bounds(requirement: str, problem: str | None) -> None:
    told = doctor._unmet(requirement)
    assert (told is None) == (problem is None)
    assert problem is None or problem in str(told)
