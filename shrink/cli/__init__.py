"""The command line: flags only; what they mean is decided elsewhere."""

from __future__ import annotations

from shrink.cli.app import main

__all__ = ["main"]
