"""Workers that are forks of a process that has TensorFlow imported."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tf_keras as keras

from shrink.base import forkserver as preloaded
from shrink.base.forkserver import READY, Preloaded
from shrink.base.host import host_peak_bytes
from shrink.contract.job import DoctorJob
from shrink.run import process
from shrink.run.forkserver import Server
from shrink.run.process import LOG_NAME, run_worker
from tests.cli.shell import read_report, shrink
from tests.run.tiny import write_recipe

_ALIKE = 0.03


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Preloaded]:
    monkeypatch.setattr(process, "switched_off", lambda: "")
    monkeypatch.setattr(process._Held, "process", None)
    process.preload()
    started = process._Held.process
    assert started is not None
    yield started
    started.close()


def test_a_worker_is_a_fork_with_the_memory_of_a_fresh_process(
    server: Preloaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_FRESH", ())
    asked = []

    def fork(*arguments: Any) -> Any:
        asked.append(Preloaded.fork(server, *arguments))
        return asked[-1]

    monkeypatch.setattr(server, "fork", fork)
    worked = run_worker(DoctorJob(), tmp_path, lambda event: None)
    assert len(asked) == 1
    assert asked[0] is not None
    assert worked["devices"] == ["CPU:0"]
    # The pages of libraries are in it, which a fork does not have until it touches them.
    assert worked["host_peak_bytes"] > (1 - _ALIKE) * host_peak_bytes(server._process.pid)
    assert "oneDNN custom operations" not in (tmp_path / LOG_NAME).read_text()
    # The process itself has opened no device, and keeps no thread.
    tasks = Path(f"/proc/{server._process.pid}/task")
    assert len([*tasks.iterdir()]) == 1


@pytest.mark.parametrize(
    ("why", "said"),
    [("", ""), ("a thread runs", "a thread runs"), (None, "it ended during its imports")],
)
def test_the_process_says_why_it_forks_for_nobody(
    why: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(command: list[str], **_: Any) -> subprocess.Popen[bytes]:
        with socket.socket(fileno=os.dup(int(command[4]))) as its:
            if why is not None:
                its.send((why or READY).encode())
        return popen(["sleep", "60"])

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    started = Preloaded("nothing", {})
    assert [started.refusal(), started.refusal()] == [said, said]
    started.close()


def test_a_process_whose_imports_do_not_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(command: list[str], **_: Any) -> subprocess.Popen[bytes]:
        return popen(["sleep", "60"], pass_fds=(int(command[4]),))

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(preloaded, "_IMPORTS_S", 0.05)
    started = Preloaded("nothing", {})
    assert started.refusal() == "its imports took more than 0 s"
    started.close()


@pytest.mark.parametrize("lacking", ["fork", "pidfd_open"])
def test_a_fork_that_cannot_be_made_is_told_and_ends_nothing(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked reads the end of the pipe, and starts a fresh process."""

    def refuse(*_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    told, tell = os.pipe()
    with subprocess.Popen(["sleep", "60"]) as other:
        monkeypatch.setattr(os, "fork", lambda: other.pid)
        monkeypatch.setattr(os, lacking, refuse)
        with asking, asked, os.fdopen(told, "rb") as answers:
            socket.send_fds(asking, [b"fork"], [asking.fileno(), tell])
            os.close(tell)
            assert not Server(asked, [])._answer()
            assert answers.read() == b""
        if lacking == "fork":
            other.kill()


def weights(path: Path) -> list[np.ndarray]:
    return keras.models.load_model(path, compile=False).get_weights()


@pytest.mark.slow
def test_a_run_of_forks_is_one_of_fresh_processes_to_the_bit(tmp_path: Path) -> None:
    write_recipe(tmp_path)
    ways, reports = {"0": tmp_path / "fresh", "1": tmp_path / "forks"}, []
    for switch, out in ways.items():
        words = ("run", "recipe.yaml", "--output", str(out))
        told = {"SHRINK_PRELOAD": switch}
        shrink(*words, cwd=tmp_path, store=tmp_path / f"store{switch}", env=told, fresh=True)
        reports.append(read_report(out))
    fresh, forks = ways.values()
    for name in ("artifacts/00-train.keras", "artifacts/01-prune.keras"):
        for a, b in zip(weights(fresh / name), weights(forks / name), strict=True):
            np.testing.assert_array_equal(a, b)
    tflite = [hashlib.sha256((out / "artifacts/02-quantize.tflite").read_bytes()).hexdigest()
              for out in ways.values()]  # fmt: skip
    assert tflite[0] == tflite[1]
    for one, other in zip(reports[0]["stages"], reports[1]["stages"], strict=True):
        assert one["metrics"] == other["metrics"]
        for figure in ("training_peak_allocator_bytes", "arena_bytes"):
            assert one["memory"][figure] == other["memory"][figure]
