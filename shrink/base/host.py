"""The machine that figures are measured on, and the memory of a process on it."""

from __future__ import annotations

import platform
import re
import resource
from pathlib import Path

from shrink.base.errors import ResourceError

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_FREE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)


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


def host_resident_bytes() -> int:
    """Return the resident memory of this process now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def host_free_bytes() -> int:
    """Return what the kernel says could be allocated now, in bytes; 0 where it does not say."""
    try:
        found = _FREE.search(Path("/proc/meminfo").read_text("ascii"))
    except OSError:
        return 0
    return int(found.group(1)) * 1024 if found else 0


def machine() -> str:
    """Return what the figures were measured on: architecture, processor, memory."""
    memory_gb = int(Path("/proc/meminfo").read_text("ascii").split()[1]) * 1024 / 1e9
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = f"{len(names)} x {names[0]}" if names else platform.processor()
    return f"{platform.machine()}, {processor}, {memory_gb:.0f} GB"
