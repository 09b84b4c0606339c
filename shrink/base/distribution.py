"""The name under which shrink is installed, and how its extras are named to people."""

from __future__ import annotations

import importlib.metadata

DISTRIBUTION = "shrink-keras"
"""`shrink` belongs to another project on the package index; the command and import are ours."""


def extra_hint(extra: str) -> str:
    """Return the command that installs what an optional feature needs."""
    return f"python -m pip install '{DISTRIBUTION}[{extra}]'"


def requirements() -> list[str]:
    """Return what the installed distribution requires; nothing for a bare source tree."""
    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
