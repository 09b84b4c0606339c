"""What counts as a number in a report that somebody may have edited."""

from __future__ import annotations

import math
from typing import Any, TypeGuard


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is finite and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
