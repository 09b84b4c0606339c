"""Plain scalars by the core schema of YAML 1.2."""

from __future__ import annotations

import math
import re
from typing import Any

from shrink.base.errors import Position, RecipeError

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(
    ("false", "False", "FALSE"), False
)
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MOST_DIGITS = 64


def resolve(text: str, position: Position) -> Any:
    """Return the value of a plain scalar by the core schema (YAML 1.2.2, section 10.3.2).

    Raises:
        RecipeError: an integer beyond 64 bits, a float beyond double precision, infinity or NaN.
    """
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return _integer(text, position)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise RecipeError(f"{short(text)} is too large for a number", position=position)
        return number
    if _NOT_FINITE.fullmatch(text):
        raise RecipeError(
            f"{text} is not a number that a recipe can use",
            position=position,
            hint="leave the key out for its default",
        )
    return text


def _integer(text: str, position: Position) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    # Python refuses to convert thousands of decimal digits, so the length comes first.
    number = int(text, base) if len(text) <= _MOST_DIGITS else None
    if number is None or not -(2**63) <= number < 2**63:
        raise RecipeError(f"{short(text)} does not fit into 64 bits", position=position)
    return number


def short(text: str, limit: int = 40) -> str:
    """Return `text` quoted, and cut where it is longer than `limit` characters."""
    return repr(text if len(text) <= limit else f"{text[:limit]}…")
