"""Forks the children that run .tflite files from a process that has the runtimes imported.

The imports are most of what such a child takes, and tests start hundreds. All else is the same, by
the fork server that shrink's own workers have. Run as `python -m tests.runtimes`.
"""

from __future__ import annotations

import functools
import gc
import os
import socket
import sys
from typing import Any

from shrink.base import child
from shrink.base.forkserver import Preloaded
from shrink.run.forkserver import Server
from shrink.tflite import runtime

FRESH = "InferenceRequest"
"""The task that measures the memory of its process."""


@functools.cache
def server() -> Preloaded:
    """Start the process that forks; it ends with the one that asked for it."""
    return Preloaded(__name__, os.environ)


def install() -> None:
    """Have this process, and its forks, ask for such children here."""
    started = child.Child.__init__

    @functools.wraps(started)
    def start(self: Any, module: str, request: Any, *others: Any, **named: Any) -> None:
        if module == runtime.MODULE and FRESH not in request:
            named["preloaded"] = server()
        started(self, module, request, *others, **named)

    held: Any = child.Child
    held.__init__ = start


def _serve() -> None:
    descriptor, parent = map(int, sys.argv[1:3])
    child.die_with_parent(parent)
    from tflite_micro import runtime as micro  # noqa: F401

    from shrink.tflite import interpreter  # noqa: F401

    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as connection:
        Server(connection, []).serve()
    runtime.main()


if __name__ == "__main__":
    _serve()
