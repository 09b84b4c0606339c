"""The host's processors, memory, and processes killed by the kernel for lack of memory."""

from __future__ import annotations

import os
import platform
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from shrink.base.errors import ResourceError

_MEMORY = Path("/proc/meminfo")


def host_peak_bytes(pid: int | str = "self") -> int:
    """Return the most resident memory that a process held since it was executed, in bytes.

    The kernel's high-water mark; `ru_maxrss` would inherit the parent's.

    Args:
        pid: a process id, or "self".

    Raises:
        ResourceError: there is no such process, or no /proc.
    """
    status = Path("/proc") / str(pid) / "status"
    if (found := _number_in(status, "VmHWM:")) is None:
        raise ResourceError("cannot be read, or has no high-water mark (VmHWM)", subject=status)
    return found * 1024


def host_resident_bytes() -> int:
    """Return the resident memory of this process now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def host_free_bytes() -> int:
    """Return what the kernel says could be allocated now, in bytes; 0 where it does not say."""
    return (_number_in(_MEMORY, "MemAvailable:") or 0) * 1024


_GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")


def gpu_device() -> str:
    """Return a device file by which a GPU could be reached; empty where there is none."""
    return next((path for path in _GPU_DEVICES if Path(path).exists()), "")


_NVIDIA_CARDS = Path("/proc/driver/nvidia/gpus")
_HIDDEN = ("", "-1")
UNUSED_GPU_HINT = (
    'install CUDA\'s libraries: python -m pip install "tensorflow[and-cuda]"; or set '
    "CUDA_VISIBLE_DEVICES=-1 to train on the CPU"
)


def has_nvidia_gpu() -> bool:
    """Whether the driver of an NVIDIA card is loaded, or reachable in a container or WSL."""
    cards = _NVIDIA_CARDS.is_dir() and any(_NVIDIA_CARDS.iterdir())
    return cards or "nvidia" in gpu_device() or shutil.which("nvidia-smi") is not None


def unused_gpu(used: bool) -> str:
    """Return that TensorFlow cannot use this machine's NVIDIA card; empty where it can.

    Args:
        used: whether TensorFlow lists a GPU.
    """
    if used or os.environ.get("CUDA_VISIBLE_DEVICES") in _HIDDEN or not has_nvidia_gpu():
        return ""
    return "this machine has an NVIDIA GPU, but TensorFlow cannot use it and trains on the CPU"


HOST_LIMIT = "SHRINK_HOST_MEMORY_LIMIT"
"""Environment variable of a worker: the bytes that its process may hold, where there is a limit."""


HOST_SHARED_BY = "SHRINK_HOST_SHARED_BY"
"""Environment variable of one of several runs at a time: how many share the control group."""


def available_memory_bytes() -> int | None:
    """Return how much memory this process can still have, or None where nobody says.

    The least of what the kernel has, what is left of each control group around the process, and
    what is left of `training.host_memory_limit`.
    """
    found = [free] if (free := host_free_bytes()) else []
    if (left := group_left_bytes()) is not None:
        found.append(left)
    if (limit := os.environ.get(HOST_LIMIT, "")).isdecimal():
        found.append(max(0, int(limit) - host_resident_bytes()))
    return min(found, default=None)


def group_left_bytes(folders: list[Path] | None = None) -> int | None:
    """Return what is left of the tightest control group's limit; None where there is no limit.

    Pages of files that the kernel would drop first do not count as used.

    Args:
        folders: of the groups, by default of those around this process, of either version.
    """
    left = []
    for folder in _folders() if folders is None else folders:
        for limit_name, used_name, dropped in _USAGES:
            limit, used = _number(folder / limit_name), _number(folder / used_name)
            if limit is not None and used is not None and limit < _UNLIMITED:
                cached = _number_in(folder / "memory.stat", dropped) or 0
                left.append(max(0, limit - max(0, used - cached)))
    return min(left, default=None)


_UNLIMITED = 1 << 60
_USAGES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _number(path: Path) -> int | None:
    return next((int(line) for line in _lines(path) if line.isdecimal()), None)


def _number_in(path: Path, key: str) -> int | None:
    """Return the number behind a key, the first word of its line; None where it is not there."""
    words = (line.split() for line in _lines(path))
    return next((int(word[1]) for word in words if word[:1] == [key]), None)


def machine() -> str:
    """Return what the figures were measured on: architecture, processor, memory."""
    memory_gb = _total_bytes() / 1e9
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = f"{len(names)} x {names[0]}" if names else platform.processor()
    return f"{platform.machine()}, {processor}, {memory_gb:.0f} GB"


_NEAR = 0.9
_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/unified"))
_COUNTERS = ("memory.events", "memory.oom_control")
_LIMITS = ("memory.max", "memory.limit_in_bytes")


class HostMemory:
    """What the kernel counts of this process's control group, from now on.

    Workers are in their parent's group.

    Args:
        group: its folders, by default those of this process, of either version of control groups.
        total_bytes: the machine's memory, by default what the kernel says.
    """

    def __init__(self, group: list[Path] | None = None, total_bytes: int | None = None) -> None:
        self._folders = _folders() if group is None else group
        self._total_bytes = _total_bytes() if total_bytes is None else total_bytes
        self._kills = self._count_kills()

    def evidence(self, resident_bytes: int) -> str:
        """Say what speaks for memory as the cause of a death; empty if nothing does.

        Args:
            resident_bytes: the most that the process was seen to hold.
        """
        kills = self._count_kills() - self._kills
        if kills > 0:
            return f"the control group's oom_kill counter rose by {kills}"
        limit = self.limit_bytes()
        if limit and resident_bytes >= _NEAR * limit:
            return (
                f"resident memory of {resident_bytes / 1e6:.0f} MB near the limit of"
                f" {limit / 1e6:.0f} MB"
            )
        return ""

    def _count_kills(self) -> int:
        """Return how often the kernel has ended a process of the nearest group that counts."""
        counters = (folder / name for folder in self._folders for name in _COUNTERS)
        counts = (_number_in(counter, "oom_kill") for counter in counters)
        return next((count for count in counts if count is not None), 0)

    def limit_bytes(self) -> int:
        """Return the bytes that this process may hold: the machine's, or its group's limit."""
        limits = [self._total_bytes]
        for folder in self._folders:
            for name in _LIMITS:
                limits += [int(line) for line in _lines(folder / name) if line.isdecimal()]
        return min(limit for limit in (*limits, 1 << 62) if limit > 0)


def _folders() -> list[Path]:
    """Return the folders of this process's memory control group, then those above it."""
    found: list[Path] = []
    for line in _lines(Path("/proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        inside = Path(path.lstrip("/"))
        for root in _ROOTS:
            found += [
                p for p in _upwards(root, inside) if any((p / c).is_file() for c in _COUNTERS)
            ]
    return found


def _upwards(root: Path, inside: Path) -> Iterator[Path]:
    yield root / inside
    for parent in inside.parents:
        yield root / parent


def _total_bytes() -> int:
    return (_number_in(_MEMORY, "MemTotal:") or 0) * 1024


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("ascii", "replace").splitlines()
    except OSError:
        return []
