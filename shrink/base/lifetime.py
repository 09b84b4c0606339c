"""Bind a child process to its parent's life, so that a killed run leaves nothing behind."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel send SIGKILL to this process when the thread that started it ends.

    Linux's `prctl(PR_SET_PDEATHSIG)`: it is the thread that counts, so a child must be started
    from a thread that outlives it. Elsewhere this does nothing.

    Args:
        parent: the parent's process id, if this child was told. Where the parent has gone before
            the kernel was asked, the process ends itself.
    """
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (AttributeError, OSError):
        return
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
