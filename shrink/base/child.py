"""Child processes: run one with a limit of time, and end with the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel send SIGKILL to this process when the thread that started it ends.

    Linux's `prctl(PR_SET_PDEATHSIG)`: it is the thread that counts, so a child must be started
    from a thread that outlives it. Elsewhere this does nothing.

    Args:
        parent: the parent's process id, if this child was told. Where the parent has gone before
            the kernel was asked, the process ends itself.
    """
    import ctypes  # the parent, a light command, needs none of it

    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (AttributeError, OSError):
        return
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


_LAST_WORDS = 200


@dataclass(frozen=True)
class ChildRun:
    """How a child process ended.

    Attributes:
        output: what it printed, stdout and stderr as they came.
        failure: None after a clean exit, else one phrase that says how it ended.
        timed_out: whether it was ended for taking too long.
    """

    output: str
    failure: str | None
    timed_out: bool = False


def run_child(module: str, *arguments: str, timeout_s: float) -> ChildRun:
    """Run `python -m module PARENT_PID arguments...` and wait; how it ends raises nothing.

    Args:
        module: its first argument is this process's id, for `die_with_parent`.
        arguments: the rest of its arguments.
        timeout_s: after so many seconds it is killed.
    """
    command = [sys.executable, "-P", "-m", module, str(os.getpid()), *arguments]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return ChildRun(_decode(late.output), f"took longer than {timeout_s:g} s", timed_out=True)
    except OSError as error:
        return ChildRun("", f"could not be started ({error.strerror})")
    return ChildRun(_decode(done.stdout), _failure(done.returncode, _decode(done.stdout)))


def _failure(code: int, output: str) -> str | None:
    if code == 0:
        return None
    if code < 0:
        return f"died by {signal.Signals(-code).name}"
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return f"ended with code {code} ({last.strip()[:_LAST_WORDS]})"


def _decode(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", "replace")
