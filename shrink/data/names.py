"""Many file names in little memory; light.

A list of 500,000 names takes 50 MB as Python's strings, and half of that in one piece.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from typing import overload


class Names(Sequence[str]):
    """File names, kept as bytes one after the other: 8 bytes each beside the name itself.

    Args:
        names: to begin with.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])
        for name in names:
            self.append(name)

    def append(self, name: str) -> None:
        """Add a name at the end."""
        self._bytes += os.fsencode(name)
        self._ends.append(len(self._bytes))

    def encoded(self, index: int) -> bytes:
        """Return the bytes of one name; `index` counts from 0."""
        return bytes(self._bytes[self._ends[index] : self._ends[index + 1]])

    def take(self, indices: Iterable[int]) -> Names:
        """Return some of the names, in the order asked for."""
        taken = Names()
        for index in indices:
            taken._bytes += self._bytes[self._ends[index] : self._ends[index + 1]]
            taken._ends.append(len(taken._bytes))
        return taken

    def unique(self) -> Names:
        """Return each name once, in the order they appear in first."""
        seen: set[int] = set()  # 64 bits of each name, for the names themselves take thrice as much

        def is_new(name: str) -> bool:
            before = len(seen)
            seen.add(hash(name))
            return len(seen) > before

        return Names(filter(is_new, self))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Names: ...

    def __getitem__(self, index: int | slice) -> str | Names:
        if isinstance(index, slice):
            return self.take(range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return os.fsdecode(self.encoded(index % len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it can grow

    def __repr__(self) -> str:
        return f"Names({list(self)})"
