"""Functions of a user's own Python files, as recipes name them: `file.py:function`."""

from __future__ import annotations

import re

_OF_FILE = re.compile(r"(.+\.py):([^\W\d]\w*)")


def of_file(text: str) -> tuple[str, str] | None:
    """Return file and name of a function; None where the text names none."""
    found = _OF_FILE.fullmatch(text)
    return None if found is None else (found[1], found[2])
