"""The parent's side of the fork server, a process that imports TensorFlow once and then forks.

The process listens at a socket of which this process, and forks of it, hold the other end. A
request is one message with descriptors: what to become, a pipe for how it ends, and the child's
own. The fork says its process id, the process its exit code. What is read at import, or inherited,
must not change while the process lives: it is that of one command, or of one call from Python.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from shrink.base import files
from shrink.base.host import gpu_device

SWITCH = "SHRINK_PRELOAD"
"""The environment variable that turns it off, as 0."""
STATUS = struct.Struct("=cq")
"""What a pipe carries: `BEGUN` and a process id, then `ENDED` and an exit code."""
BEGUN, ENDED = b"B", b"E"
READY = "ready"
"""What the process says once it can fork; another sentence is why it cannot."""
_IMPORTS_S = 300.0
"""After which the process is taken for one that hangs."""


class Fork:
    """A process that was forked, with what `subprocess.Popen` tells of one.

    Args:
        pid: its process id.
        pipe: the end of the pipe by which the exit code comes. That the other end is closed
            without one means that all were killed; that this one is closed kills the fork.
    """

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._pipe = pipe

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code.

        Raises:
            subprocess.TimeoutExpired: it runs longer than `timeout` seconds.
        """
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["fork"], timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._pipe, select.POLLIN)
            if poll.poll(None if timeout is None else 1000 * timeout):
                code = _number(self._pipe, ENDED)
                self.returncode = -signal.SIGKILL if code is None else code
                os.close(self._pipe)
        return self.returncode


Process: TypeAlias = "subprocess.Popen[bytes] | Fork"


class Preloaded:
    """The process that forks, started; it ends with this process.

    Args:
        module: what it runs, with the descriptor of its socket and this process's id; see
            `shrink/run/forkserver.py`.
        environment: in which it does the imports.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", module, str(its.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(its.fileno(),),
                    # No keras.json is read, and none is written.
                    env={**environment, "KERAS_HOME": "/dev/null/none"},
                    start_new_session=True,
                )
            except OSError:
                self._socket.close()
                raise
        self._owner = os.getpid()
        self._refusal: str | None = None
        atexit.register(self.close)

    def refusal(self) -> str:
        """Return why the process forks for nobody, empty if it does; waits for its imports."""
        if self._refusal is None:
            self._socket.settimeout(_IMPORTS_S)
            try:
                said = self._socket.recv(1 << 12).decode()
            except TimeoutError:
                said = f"its imports took more than {_IMPORTS_S:.0f} s"
            except OSError:
                said = ""
            self._socket.settimeout(None)
            self._refusal = "" if said == READY else said or "it ended during its imports"
        return self._refusal

    def close(self) -> None:
        """End the process and all its forks; for the one that started it."""
        atexit.unregister(self.close)
        self._socket.close()
        if os.getpid() == self._owner:
            self._process.kill()
            self._process.wait()

    def fork(
        self,
        request: int,
        output: int,
        environment: Mapping[str, str],
        descriptors: Sequence[int],
    ) -> Fork | None:
        """Return a fork that has begun; None where a fresh process is to be started.

        Args:
            request: descriptor of its standard input.
            output: of its stdout and stderr.
            environment: its own.
            descriptors: that it finds under the same numbers. To the first it writes messages.
        """
        # The kernel ends a child with the thread that started it, which the main one outlives.
        if threading.current_thread() is not threading.main_thread():
            return None
        with contextlib.ExitStack() as until_sent:
            try:
                become = {
                    "environment": dict(environment),
                    "folder": str(Path.cwd()),
                    "descriptors": [*descriptors],
                }
                content = json.dumps(become, ensure_ascii=False)
                stdin = files.in_memory(files.encoded(content))
                until_sent.callback(os.close, stdin)
                pipe, its = os.pipe()
                until_sent.callback(os.close, its)
            except OSError:
                return None
            given = [stdin, its, request, output, *descriptors]
            return self._begun(given, pipe, until_sent)

    def _begun(
        self, given: Sequence[int], pipe: int, until_sent: contextlib.ExitStack
    ) -> Fork | None:
        begun = None
        try:
            socket.send_fds(self._socket, [b"fork"], given)
            until_sent.close()
            if (pid := _number(pipe, BEGUN)) is not None:
                begun = Fork(pid, pipe)
        except OSError:  # the process has gone, or is not safe to fork
            pass
        finally:
            if begun is None:
                os.close(pipe)
        return begun


def switched_off() -> str:
    """Return why no process is preloaded, whatever is to be run; empty where one may be."""
    if os.environ.get(SWITCH, "1").strip().lower() in ("0", "false", "off", "no"):
        return f"{SWITCH} is {os.environ[SWITCH]}"
    if device := gpu_device():
        return f"there is {device}, and a fork must not share the driver of a GPU"
    if "LD_PRELOAD" in os.environ:
        return "LD_PRELOAD is set"
    return ""


def _number(pipe: int, kind: bytes) -> int | None:
    """Return the next number of a pipe, which is waited for; None for another kind or the end."""
    said = os.read(pipe, STATUS.size)
    found, number = STATUS.unpack(said) if len(said) == STATUS.size else (b"", 0)
    return number if found == kind else None
