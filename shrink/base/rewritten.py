"""One line that is written over again, where there is no terminal but a carriage return works."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

_WIDTH = 78
_LEAST_S = 0.25


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook; IPython is not imported to tell."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_shell() if callable(get_shell) else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class RewrittenLine:
    """A line of at most 78 columns on a stream, four times a second at most.

    Args:
        stream: that notebooks show.
        clock: seconds that only rise.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._last = -_LEAST_S
        self._width = 0

    def write(self, text: Callable[[int], str]) -> None:
        """Write the line anew, unless it has just been.

        Args:
            text: of so many columns.
        """
        now = self._clock()
        if now - self._last < _LEAST_S:
            return
        self._last = now
        shown = text(_WIDTH)
        self._stream.write(f"\r{shown.ljust(self._width)}")
        self._stream.flush()
        self._width = len(shown)

    def clear(self) -> None:
        """Take the line away."""
        if self._width:
            self._stream.write(f"\r{' ' * self._width}\r")
            self._stream.flush()
        self._width = 0
