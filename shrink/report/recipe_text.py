"""The recipe that a report holds, read again to be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shrink.base.errors import RecipeError
from shrink.base.yaml import reader as yaml
from shrink.report.content import Report

_BYTE_OF_A_NAME = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""How YAML writes a byte of a file's name that the locale could not read."""


def recipe_of(report: Report) -> Mapping[str, Any]:
    """Return the resolved recipe of a report for display; empty where it has none to be read.

    Bytes of names that are no text in their locale become U+FFFD.
    """
    text = _BYTE_OF_A_NAME.sub("\N{REPLACEMENT CHARACTER}", report.get("resolved_recipe") or "{}")
    try:
        value = yaml.loads(text, "resolved recipe").value
    except RecipeError:  # a report of another version; its figures still count
        return {}
    return value if isinstance(value, Mapping) else {}
