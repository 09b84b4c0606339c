"""Names for JSON and YAML that others wrote; without NumPy, for what reads no arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

Json: TypeAlias = Any
"""A value read from JSON or YAML that others wrote: not checked yet, so anything."""

JsonObject: TypeAlias = dict[str, Any]
"""An object of JSON or YAML that others wrote, its keys not checked yet."""
