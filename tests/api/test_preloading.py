"""Calls of the Python interface fork their workers from a process that ends with the call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shrink.api.session import called, working
from shrink.base.errors import InputError
from shrink.run import process
from tests.cli.shell import environment
from tests.cli.toy import write_toy


class _Stand:
    """Stands for the process that forks."""

    def __init__(self, module: str, inherited: dict[str, str]) -> None:
        self.open = True

    def close(self) -> None:
        self.open = False


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[_Stand]:
    made: list[_Stand] = []

    def start(*given: Any) -> _Stand:
        made.append(_Stand(*given))
        return made[-1]

    monkeypatch.setattr(process, "Preloaded", start)
    monkeypatch.setattr(process, "switched_off", lambda: "")
    monkeypatch.setattr(process._Held, "process", None)
    return made


def test_a_call_leaves_no_process_behind_whatever_its_end(started: list[_Stand]) -> None:
    with called():
        assert process._Held.process is None
    with working():
        held: object = process._Held.process
        assert held is started[0]
        assert started[0].open
    with pytest.raises(InputError), working():
        raise InputError("no such file")
    assert [one.open for one in started] == [False, False]
    assert process._Held.process is None


def test_a_process_that_there_is_stays(started: list[_Stand]) -> None:
    process.preload()
    with working():
        pass
    assert [one.open for one in started] == [True]
    held: object = process._Held.process
    assert held is started[0]


_CALL = """
import json, os, pathlib, shrink
from shrink.base.forkserver import Preloaded
forks, fork = [], Preloaded.fork
def told(*given):
    forks.append(fork(*given))
    return forks[-1]
Preloaded.fork = told
run = shrink.run("toy.yaml", output="out", no_cache=True, quiet=True)
left = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
stages = [[dict(one.metrics), one.reported.sha256] for one in run.stages]
print(json.dumps([[one is not None for one in forks], left, stages[-1]]))
"""


@pytest.mark.slow
def test_a_script_forks_its_workers_to_the_same_bytes(tmp_path: Path) -> None:
    recipe = write_toy(tmp_path)
    with recipe.open("a", encoding="utf-8") as stream:
        stream.write("  - quantize: {scheme: static_wi8_ai8}\n")
    told = []
    for switch in "10":
        done = subprocess.run(
            [sys.executable, "-c", _CALL],
            cwd=tmp_path,
            env=environment(tmp_path / switch, {"SHRINK_PRELOAD": switch}),
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(json.loads(done.stdout))
    (forks, left, last), (fresh, _, same) = told
    assert forks == [True] * len(forks) != []
    assert fresh == []
    assert left == []
    assert last == same
