"""Where shrink keeps things between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """Return the cache folder, which need not exist.

    It is $SHRINK_CACHE_DIR, else $XDG_CACHE_HOME/shrink, else ~/.cache/shrink. A relative
    $XDG_CACHE_HOME is ignored, as the XDG base directory specification asks.
    """
    if own := os.environ.get("SHRINK_CACHE_DIR"):
        return Path(own).expanduser().resolve()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "shrink"
