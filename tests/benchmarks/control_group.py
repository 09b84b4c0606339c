"""A control group of its own for a command: what it holds beyond the limit, the kernel kills."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
_ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


@dataclass(frozen=True)
class ControlGroup:
    """A group with a limit of memory.

    Attributes:
        folder: its control files.
        peak: of these the one that tells the most that it ever held.
        events: the one that counts kills.
    """

    folder: Path
    peak: str
    events: str

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command that runs another one within the group."""
        return ["sh", "-c", _ENTER, str(self.folder), *words]

    def peak_bytes(self) -> int:
        """Return the most that the group held, with the pages of files that it read."""
        return int((self.folder / self.peak).read_text("ascii"))

    def kills(self) -> int:
        """Return how many processes the kernel has ended for the group's limit."""
        lines = (self.folder / self.events).read_text("ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@contextlib.contextmanager
def control_group(limit_bytes: int) -> Iterator[ControlGroup]:
    """Make a group of either version, and remove it in the end; needs root.

    Raises:
        OSError: this process may not make one.
    """
    is_v1 = (_V1 / "memory.limit_in_bytes").is_file()
    folder = (_V1 if is_v1 else _V2) / f"shrink-bench-{os.getpid()}"
    folder.mkdir()
    try:
        if is_v1:
            made = ControlGroup(folder, "memory.max_usage_in_bytes", "memory.oom_control")
            (folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        else:
            made = ControlGroup(folder, "memory.peak", "memory.events")
            (folder / "memory.max").write_text(str(limit_bytes))
            with contextlib.suppress(OSError):  # a kernel without swap has no such file
                (folder / "memory.swap.max").write_text("0")
        yield made
    finally:
        folder.rmdir()
