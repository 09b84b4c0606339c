"""Where shrink keeps things between runs, and what a run folder is known by."""

from __future__ import annotations

import os
from pathlib import Path

from shrink.base.errors import ResourceError

REPORT_NAME = "report.json"
"""A run folder's report, which is written last."""


def cache_root() -> Path:
    """Return the cache folder, which need not exist.

    It is $SHRINK_CACHE_DIR, else $XDG_CACHE_HOME/shrink, else ~/.cache/shrink. A relative
    $XDG_CACHE_HOME is ignored, as the XDG base directory specification asks.
    """
    if own := os.environ.get("SHRINK_CACHE_DIR"):
        return (Path(own).expanduser() if own.startswith("~/") else Path(own)).resolve()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else _home() / ".cache") / "shrink"


def existing(path: Path) -> Path:
    """Return a path, or the nearest folder above it that exists: what its disk is asked by."""
    return next(place for place in (path, *path.parents) if place.exists())


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise ResourceError(
            "there is no home folder to keep finished stages in: HOME is not set",
            subject="~/.cache/shrink",
            hint="name a folder with SHRINK_CACHE_DIR",
        ) from error
