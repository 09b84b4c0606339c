"""The command line: flags only; what they mean is decided elsewhere."""

from __future__ import annotations

import signal

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with the documented code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback out of the imports that follow
    from shrink.cli import app

    app.main()
