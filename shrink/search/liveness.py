"""Whether a worker of a search still lives, by its process where that can be seen, or its silence.

A process id means something only under the kernel that gave it, and in the same namespace: two
containers may share a hostname, and a machine that was started anew gives the same numbers again.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

_DEAD_AFTER_S = 90.0
_PROC = Path("/proc")
_PARTS = 4
_STARTED = 19
"""Field of /proc/PID/stat behind the name of the program: when it started, in clock ticks."""


def name_of_this_worker() -> str:
    """Return a name of this process that no other has, anywhere: `PLACE:PID:START:RANDOM`."""
    pid = os.getpid()
    return f"{_place()}:{pid}:{_started(pid) or ''}:{uuid.uuid4().hex[:8]}"


def is_dead(worker: str, beat: float) -> bool:
    """Whether a worker has gone.

    Args:
        worker: its name, from `name_of_this_worker`; one of another form is of another version.
        beat: when it last said that it lives, by `time.time`.
    """
    name = worker.rsplit(":", 3)
    if len(name) == _PARTS and name[0] and name[0] == _place():
        return _started(int(name[1])) != name[2]
    return time.time() - beat > _DEAD_AFTER_S


def _place() -> str:
    """Return where process ids mean the same as here; nothing where the kernel does not say."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Return when a process started; None where there is none of this number."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[_STARTED]
