"""The process that has done a worker's imports and forks a worker for each request.

The other side of `shrink/base/forkserver.py`. It opens no device, creates no TensorFlow context and
keeps no thread; where a fork of it would not be what a fresh process is, it ends before it serves,
and fresh processes are started as if it were not there.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import mmap
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from shrink.base.child import die_with_parent
from shrink.base.forkserver import BEGUN, ENDED, READY, STATUS
from shrink.base.host import host_resident_bytes
from shrink.run import worker

_MOST_DESCRIPTORS = 16
_OWN = 4
"""Descriptors of a request before those of the child: what to become, the pipe, input, output."""
_PRESENT = 1 << 63
_MADV_POPULATE_READ = 22
_ALIKE = 0.97


def main() -> None:
    """Do the imports, then serve; in a fork, be a worker."""
    descriptor, parent = map(int, sys.argv[1:3])
    die_with_parent(parent)
    gc.disable()
    # Import what steps import, and nothing that others have installed.
    from shrink.stages import STAGES

    warnings.simplefilter("ignore")
    importlib.import_module("shrink.run.execute")
    for kind in STAGES:
        if STAGES[kind].__module__.startswith("shrink."):
            importlib.import_module(f"shrink.stages.{kind}.run")
    gc.collect()
    gc.freeze()
    import numpy as np

    page, found = mmap.PAGESIZE, []
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
            span, _, _, _, inode = line.split(maxsplit=5)[:5]
            begin, end = (int(text, 16) for text in span.split("-"))
            if inode == "0":
                continue
            pagemap.seek(begin // page * 8)
            entries = np.frombuffer(pagemap.read((end - begin) // page * 8), np.uint64)
            present = np.concatenate([[False], entries & np.uint64(_PRESENT) != 0, [False]])
            edges = np.flatnonzero(present[1:] != present[:-1]).reshape(-1, 2)
            found += [(begin + int(a) * page, int(b - a) * page) for a, b in edges]
    mapped = found
    with socket.socket(fileno=descriptor) as connection:
        why = _unsafe(mapped)
        connection.send((why or READY).encode())
        if why:
            sys.exit(why)
        Server(connection, mapped).serve()
    gc.enable()
    worker.main()


@dataclass(frozen=True)
class _Running:
    """A fork: its id, a descriptor of it, and the pipe by which its parent hears its end."""

    pid: int
    process: int
    pipe: int


class Server:
    """Forks for each request that comes through a socket, and tells how the forks end.

    Args:
        connection: a socket of whole messages.
        mapped: what a fork maps again, see `_mapped_from_files`.
    """

    def __init__(self, connection: socket.socket, mapped: Sequence[tuple[int, int]]) -> None:
        self._connection = connection
        self._mapped = mapped
        self._running: dict[int, _Running] = {}
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def serve(self) -> None:
        """Serve until nobody is left to ask; returns in the forks alone."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._connection.fileno():
                    if self._answer():
                        return
                elif (running := self._running.get(descriptor)) is not None:
                    self._ended(running, descriptor)

    def _answer(self) -> bool:
        """Fork for the next request; whether this is the fork."""
        said, given, _, _ = socket.recv_fds(self._connection, 16, _MOST_DESCRIPTORS)
        if not said:
            self._end()
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # no memory or no process left: whoever asked starts a fresh one
            _close(given)
            return False
        if pid == 0:
            self._connection.detach()  # its number may become another descriptor's
            _become(given, server, self._mapped)
            return True
        try:
            running = _Running(pid, os.pidfd_open(pid), given[1])
        except OSError:
            _kill(pid)
            os.waitpid(pid, 0)
            _close(given)
            return False
        _close({*given} - {running.pipe})
        self._running[running.process] = self._running[running.pipe] = running
        self._poll.register(running.process, select.POLLIN)
        self._poll.register(running.pipe, 0)  # an error, once nobody listens at its other end
        return False

    def _ended(self, running: _Running, descriptor: int) -> None:
        """Tell the exit code of a fork, or kill the one for which nobody listens any more."""
        if descriptor == running.pipe:
            self._poll.unregister(running.pipe)
            _kill(running.pid)
            return
        code = os.waitstatus_to_exitcode(os.waitpid(running.pid, 0)[1])
        with contextlib.suppress(KeyError):
            self._poll.unregister(running.pipe)
        self._poll.unregister(running.process)
        with contextlib.suppress(BrokenPipeError):
            os.write(running.pipe, STATUS.pack(ENDED, code))
        for each in (running.process, running.pipe):
            del self._running[each]
            os.close(each)

    def _end(self) -> NoReturn:
        for running in self._running.values():
            _kill(running.pid)
        os._exit(0)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _kill(pid: int) -> None:
    """Kill a fork and its group, which it may not have made yet."""
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _become(given: Sequence[int], server: int, mapped: Sequence[tuple[int, int]]) -> None:
    """Take what a fresh process would have got: session, environment, folder, descriptors."""
    os.setsid()
    die_with_parent(server)
    with os.fdopen(given[0], "rb") as stream:
        stream.seek(0)
        request = json.loads(stream.read().decode("utf-8", "surrogateescape"))
    pipe, targets = given[1], [0, 1, *request["descriptors"]]
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    os.chdir(request["folder"])
    # Have Keras 3 keep its downloads where a fresh process would.
    folder = request["environment"].get("KERAS_HOME")
    config = sys.modules.get("keras.src.backend.config")
    if config is not None and folder is not None:
        config._KERAS_DIR = folder  # type: ignore[attr-defined]
    _populate(mapped)
    pipe = _placed(pipe, dict(zip(targets, given[2:], strict=True)))
    # Give numpy another seed than the next fork has, as Python does for its own.
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    sys.argv = ["worker", str(request["descriptors"][0]), str(server)]
    os.write(pipe, STATUS.pack(BEGUN, os.getpid()))
    os.close(pipe)


def _placed(pipe: int, places: dict[int, int]) -> int:
    """Move descriptors to the numbers that they are to have, and close all others but `pipe`.

    Args:
        pipe: may have to move, too; its new number is returned.
        places: descriptors by the number that each is to have; 2 is as 1.
    """
    above = max(places) + 1
    apart = {
        number: fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, above) for number, one in places.items()
    }
    pipe = fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, above)
    for number, descriptor in apart.items():
        os.dup2(descriptor, number)
    os.dup2(1, 2)
    for one in [*Path("/proc/self/fd").iterdir()]:
        if int(one.name) not in {*places, 2, pipe}:
            with contextlib.suppress(OSError):
                os.close(int(one.name))
    return pipe


def _unsafe(mapped: Sequence[tuple[int, int]]) -> str:
    """Return why forking is unsafe; empty if it is safe."""
    from tensorflow.python.eager import context

    if context.context_safe() is not None:
        return "TensorFlow has a context"
    if threading.active_count() > 1:
        return "a thread runs"
    resident = host_resident_bytes()
    fork = os.fork()
    if fork == 0:
        alike = False
        with contextlib.suppress(BaseException):
            _populate(mapped)
            alike = host_resident_bytes() >= _ALIKE * resident
        os._exit(0 if alike else 1)
    if os.waitpid(fork, 0)[1] != 0:
        return "a fork has not the memory of a fresh process"
    # OpenBLAS ends its threads before a fork, and starts them where they are next needed.
    return "a library's thread runs" if len([*Path("/proc/self/task").iterdir()]) > 1 else ""


def _populate(mapped: Sequence[tuple[int, int]]) -> None:
    """Map pages of files again, without a fault for each."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for address, length in mapped:
        advise(address, length, _MADV_POPULATE_READ)


if __name__ == "__main__":
    main()
