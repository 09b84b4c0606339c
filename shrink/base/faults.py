"""Named moments at which a run can be made to die, for the tests that kill it there."""

from __future__ import annotations

import os
import signal

VARIABLE = "SHRINK_KILL_AT"


def reached(label: str) -> None:
    """End this process by SIGKILL if $SHRINK_KILL_AT is `label`; else do nothing.

    Args:
        label: the moment, followed by `:STAGE` where every stage has one.
    """
    if os.environ.get(VARIABLE) == label:
        os.kill(os.getpid(), signal.SIGKILL)
