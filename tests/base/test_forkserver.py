from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shrink.base import files
from shrink.base.child import Child
from shrink.base.forkserver import Preloaded

_TOY = """
import json, os, signal, socket, sys, time
from shrink.base.child import die_with_parent, serve_plain
from shrink.run.forkserver import Server

def run(request, channel):
    give = lambda **result: channel.answer(result)
    exec(request["code"], {**globals(), "give": give})

if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    # A fork has a parent of its own; a fresh process is started with the same arguments.
    if len(sys.argv) == 3 and os.environ.get("TOY") != "fresh":
        with socket.socket(fileno=int(sys.argv[1])) as connection:
            Server(connection, []).serve()
    serve_plain(run)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which `toy_preloaded` is a module that forks and imports little."""
    (tmp_path / "toy_preloaded.py").write_text(_TOY)
    (tmp_path / "toy_fresh.py").write_text(_TOY.replace('.get("TOY")', '.get("TOY", "fresh")'))
    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{root}", "PYTHONUTF8": "1"}


@pytest.fixture
def toy(environment: dict[str, str]) -> Iterator[Preloaded]:
    process = Preloaded("toy_preloaded", environment)
    yield process
    process.close()


def run(
    code: str, environment: Mapping[str, str], toy: Preloaded | None, *descriptors: int
) -> tuple[Any, int | None, str]:
    """Return what a child answers, its exit code, and what it printed."""
    output = files.in_memory()
    request = {"code": code}
    with Child("toy_fresh", request, output, environment, descriptors, toy) as child:
        for _ in child.messages(60):
            pass
    printed = os.pread(output, 1 << 16, 0).decode()
    os.close(output)
    return child.result, child.code, printed


ENDS = {
    "answers": ("give(n=1)", 0),
    "exits": ("sys.exit(3)", 3),
    "raises": ("raise ValueError('bad shape')", 1),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "answers and dies": ("give(n=1); os.abort()", -signal.SIGABRT),
}


def test_a_fork_ends_as_a_fresh_process_does(environment: dict[str, str], toy: Preloaded) -> None:
    for code, ends in ENDS.values():
        fork, fresh = (run(code, environment, each) for each in (toy, None))
        assert fork[:2] == fresh[:2] == (fork[0], ends)
        assert fork[2].splitlines()[-1:] == fresh[2].splitlines()[-1:]


_SEEN = """
held = {n: os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{n}")}
ignored = [line for line in open("/proc/self/status") if line.startswith(("SigIgn", "SigBlk"))]
print("out", flush=True)
os.write(2, b"err")
give(folder=os.getcwd(), environment={**os.environ}, held=held, leads=os.getsid(0) == os.getpid(),
     group=os.getpgid(0) == os.getpid(), ignored=ignored, own=os.read(OWN, 9).decode(),
     threads=len(os.listdir("/proc/self/task")))
"""


def test_a_fork_finds_what_a_fresh_process_does(
    environment: dict[str, str], toy: Preloaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("give(n=1)", environment, toy)[0] == {"n": 1}
    monkeypatch.chdir(tmp_path)
    given = {**environment, "TMPDIR": "/tmp/elsewhere", "SHRINK_OWN": "dü\udcff"}
    found = []
    for each in (toy, None):
        own = files.in_memory(b"its own")
        os.lseek(own, 0, os.SEEK_SET)
        found.append(run(_SEEN.replace("OWN", str(own)), given, each, own))
        os.close(own)
    fork, fresh = found
    differing = {key for key in fork[0] if fork[0][key] != fresh[0][key]}
    assert {key: (fork[0][key], fresh[0][key]) for key in differing} == {}
    assert fork[1:] == fresh[1:]
    assert fork[0]["own"] == "its own"
    assert fork[0]["folder"] == str(tmp_path)
    assert fork[0]["environment"]["TMPDIR"] == "/tmp/elsewhere"


def is_fork(environment: Mapping[str, str], toy: Preloaded) -> bool:
    result, _, _ = run("give(parent=os.getppid())", environment, toy)
    return bool(result["parent"] != os.getpid())


def test_children_are_fresh_where_the_process_has_gone(
    environment: dict[str, str], toy: Preloaded
) -> None:
    assert is_fork(environment, toy)
    toy._process.kill()
    toy._process.wait()
    assert not is_fork(environment, toy)


def test_a_fork_dies_with_the_process_that_forked_it(
    environment: dict[str, str], toy: Preloaded
) -> None:
    code = "give(n=1); os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
    assert run(code, environment, toy)[:2] == ({"n": 1}, -signal.SIGKILL)


_PARENT = """
import os, sys, time
from shrink.base import files
from shrink.base.child import Child
from shrink.base.forkserver import Preloaded
toy = Preloaded("toy_preloaded", os.environ)
if {sweeps} and (pid := os.fork()):
    print(toy._process.pid, pid, flush=True)
    os.waitpid(pid, 0)
    print("ended", flush=True)
    time.sleep(60)
code = "print(os.getpid(), flush=True); time.sleep(60)"
with Child("toy_fresh", {{"code": code}}, 1, os.environ, (), toy) as child:
    for _ in child.messages():
        pass
"""


def lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20  # the kernel ends it in its own time
    while lives(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("sweeps", [False, True])
def test_nothing_outlives_a_parent_that_is_killed(
    environment: dict[str, str], sweeps: bool
) -> None:
    code = _PARENT.format(sweeps=sweeps)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        server, run_of_sweep = map(int, parent.stdout.readline().split()) if sweeps else (0, 0)
        fork = int(parent.stdout.readline())
        if sweeps:  # its fork goes, the process stays for the other runs
            os.kill(run_of_sweep, signal.SIGKILL)
            assert parent.stdout.readline() == "ended\n"
            wait_until_gone(fork)
            assert lives(server)
        parent.kill()
        parent.stdout.read()  # until all have let go of the pipe
        wait_until_gone(fork)
        if sweeps:
            wait_until_gone(server)


def test_a_child_that_is_left_is_killed(environment: dict[str, str], toy: Preloaded) -> None:
    output = files.in_memory()
    request = {"code": "time.sleep(60)"}
    with Child("toy_fresh", request, output, environment, (), toy) as child:
        assert lives(child.pid)
        with pytest.raises(TimeoutError):
            [*child.messages(0.5)]
    os.close(output)
    wait_until_gone(child.pid)
    assert is_fork(environment, toy)
