"""How many trainings, conversions and child processes a test session starts.

Each is a line of a file that all processes of the session append to. What a command starts that a
test runs in an interpreter of its own, not as a child of `tests.forks`, is not counted.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

FILE = "SHRINK_TEST_COUNTS"
"""The environment variable that names the file."""
_COUNTED = (
    ("shrink.engine.fit", "build_trainer", "training"),
    ("shrink.tflite.convert", "_run", "conversion"),
)
"""Functions that run once for each, by module."""


_made: list[Path] = []
"""The file, in the process that made it: a test may start a session of its own."""


def begin() -> None:
    """Make the file; the session's other processes inherit its name."""
    if FILE not in os.environ:
        descriptor, os.environ[FILE] = tempfile.mkstemp(prefix="shrink-counts-")
        os.close(descriptor)
        _made.append(Path(os.environ[FILE]))


def install() -> None:
    """Count in this process, and in its forks, what modules do that are imported by now."""
    from shrink.base import child

    if FILE not in os.environ:
        return
    path = os.environ[FILE]  # commands get an environment of their own
    for module, name, kind in _COUNTED:
        if module in sys.modules:
            held: Any = sys.modules[module]
            setattr(held, name, _counting(getattr(held, name), path, kind))
    started = child.Child.__init__

    @functools.wraps(started)
    def start(self: Any, module: str, request: Any, *others: Any, **named: Any) -> None:
        task = next(iter(request)) if len(request) == 1 else module.rpartition(".")[2]
        _append(path, f"child {task}")
        started(self, module, request, *others, **named)

    held = child.Child
    held.__init__ = start


def _counting(function: Any, path: str, kind: str) -> Any:
    @functools.wraps(function)
    def counted(*args: Any, **named: Any) -> Any:
        _append(path, kind)
        return function(*args, **named)

    return counted


def _append(path: str, kind: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, f"{kind}\n".encode())
    os.close(descriptor)


def totals() -> str:
    """Return what was counted, the most first, and remove the file."""
    if not _made:
        return "counted by the session that started this one"
    path = _made.pop()
    counted = Counter(path.read_text("utf-8").splitlines())
    path.unlink()
    return ", ".join(f"{count} {kind}" for kind, count in counted.most_common()) or "none"
