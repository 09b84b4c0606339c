from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from shrink.base.child import run_child
from shrink.base.errors import ModelError


@dataclass(frozen=True)
class Code:
    """What the child shall run."""

    code: str


@dataclass(frozen=True)
class Count:
    """What the child answers."""

    count: int


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the name `toy_child` that runs its request as code, which may `give(count)`."""
    (tmp_path / "toy_child.py").write_text(
        "import os, sys, time\n"
        "from dataclasses import dataclass\n"
        "from shrink.base.child import serve\n"
        "from shrink.base.errors import ModelError\n\n"
        "@dataclass\n"
        "class Code:\n"
        "    code: str\n\n"
        "def run(request, channel):\n"
        "    give = lambda n: channel.answer({'count': n})\n"
        "    exec(request.code, {**globals(), 'give': give})\n\n"
        "serve({Code: run})\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")
    return "toy_child"


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("os.kill(os.getpid(), 11)", "died by SIGSEGV"),
        ("sys.exit(3)", "ended with code 3 ()"),
        ("raise ValueError('bad shape')", "ended with code 1 (ValueError: bad shape)"),
    ],
)
def test_run_child_tells_how_the_child_ended(module: str, code: str, failure: str) -> None:
    assert run_child(module, Code(code), Count, timeout_s=30).failure == failure


def test_run_child_keeps_the_output_when_the_time_is_up_and_kills_all(module: str) -> None:
    code = Code("give(1); print(os.fork(), flush=True); os.closerange(3, 10); time.sleep(60)")
    run = run_child(module, code, Count, timeout_s=4)
    assert run.timed_out
    assert run.failure == "took longer than 4 s"
    assert run.answer == Count(1)
    fork = max(int(line) for line in run.output.split())
    deadline = time.monotonic() + 20  # the kernel ends it in its own time
    while _lives(fork):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_run_child_returns_the_last_answer_also_of_a_child_that_dies(module: str) -> None:
    code = Code("give(1); give(2); os.kill(os.getpid(), 11)")
    run = run_child(module, code, Count, timeout_s=30)
    assert run.answer == Count(2)
    assert run.code == -11


def test_run_child_returns_the_error_that_the_child_raised(module: str) -> None:
    code = Code("raise ModelError('no such layer', subject='m.keras', hint='look')")
    run = run_child(module, code, Count, timeout_s=30)
    assert isinstance(run.error, ModelError)
    assert str(run.error) == "m.keras: no such layer\n  hint: look"
    assert run.code == 3


def test_run_child_gives_a_request_of_any_length_and_letters(module: str) -> None:
    name = "ü" * 300_000 + "\udcff"
    run = run_child(module, Code(f"print(len({name!r}))"), Count, timeout_s=30)
    assert run.output == "300001\n"


def test_run_child_waits_for_the_child_and_not_for_a_fork_that_holds_the_pipe(module: str) -> None:
    code = Code("os.fork() or time.sleep(60); give(1); os.kill(os.getpid(), 9)")
    run = run_child(module, code, Count, timeout_s=30)
    assert (run.failure, run.timed_out) == ("died by SIGKILL", False)
    assert run.answer == Count(1)


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


_CHILD = """
import sys, time
from shrink.base.child import die_with_parent
if {bound}:
    die_with_parent({parent})
print("ready", flush=True)
time.sleep(1)
print("survived", flush=True)
"""
_PARENT = """
import os, subprocess, sys, time
code = {child!r}.format(bound={bound}, parent=os.getpid())
subprocess.Popen([sys.executable, "-c", code])
time.sleep(60)
"""


def words_after_parent_is_killed(bound: bool) -> str:
    code = _PARENT.format(child=_CHILD, bound=bound)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        stream = parent.stdout
        assert stream is not None
        assert stream.readline() == "ready\n"
        os.kill(parent.pid, signal.SIGKILL)
        return stream.read()  # until the child, too, has let go of the pipe


@pytest.mark.parametrize(("bound", "words"), [(True, ""), (False, "survived\n")])
def test_die_with_parent_ends_the_child_when_the_parent_is_killed(bound: bool, words: str) -> None:
    assert words_after_parent_is_killed(bound) == words


def test_die_with_parent_ends_the_child_when_the_parent_has_gone_before() -> None:
    code = "from shrink.base.child import die_with_parent\ndie_with_parent(1 << 30)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
