"""Type aliases for JSON and YAML values and for dataclasses; imports no NumPy."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Protocol, TypeAlias

Json: TypeAlias = Any
"""A value read from JSON or YAML that others wrote: not checked yet, so anything."""

JsonObject: TypeAlias = dict[str, Any]
"""An object of JSON or YAML that others wrote, its keys not checked yet."""


class Record(Protocol):
    """A dataclass of any kind."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
