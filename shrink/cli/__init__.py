"""The command line: parses flags and calls the other packages."""

from __future__ import annotations

import gc
import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with the documented code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback out of the imports that follow
    gc.set_threshold(50_000)  # the default walks all of pydantic's classes dozens of times
    from shrink.cli import app

    app.main()
