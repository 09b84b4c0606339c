"""Memory of a process, as the kernel counts it."""

from __future__ import annotations

import re
from pathlib import Path

from shrink.errors import ResourceError

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def host_peak_bytes(pid: int | str = "self") -> int:
    """Return the most resident memory that a process held since it was executed, in bytes.

    The kernel's high-water mark; `ru_maxrss` would inherit the parent's.

    Args:
        pid: a process id, or "self".

    Raises:
        ResourceError: there is no such process, or no /proc.
    """
    status = Path("/proc") / str(pid) / "status"
    try:
        found = _PEAK.search(status.read_text("ascii", "replace"))
    except OSError as error:
        raise ResourceError(f"cannot be read: {error.strerror}", subject=status) from error
    if not found:
        raise ResourceError("holds no high-water mark (VmHWM)", subject=status)
    return int(found.group(1)) * 1024
