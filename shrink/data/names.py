"""Many file names in little memory; light.

A list of 500,000 names takes 50 MB as Python's strings, and half of that in one piece.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload


class Names(Sequence[str]):
    """File names, kept as bytes one after the other: 8 bytes each beside the name itself.

    Args:
        names: to begin with.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])
        self._rows: array[int] | None = None
        self._folder = b""
        for name in names:
            self.append(name)

    def append(self, name: str) -> None:
        """Add a name at the end.

        Raises:
            TypeError: these names were taken from others, and share their memory.
        """
        if self._rows is not None or self._folder:
            raise TypeError("names that were taken from others cannot grow")
        self._bytes += os.fsencode(name)
        self._ends.append(len(self._bytes))

    def encoded(self, index: int) -> bytes:
        """Return the bytes of one name; `index` counts from 0."""
        row = self._row(index)
        name = bytes(self._bytes[self._ends[row] : self._ends[row + 1]])
        return name if name.startswith(b"/") else self._folder + name

    def take(self, indices: Iterable[int]) -> Names:
        """Return some of the names, in the order asked for; they share this one's memory."""
        taken = self._sharing(self._folder)
        taken._rows = array("q", (self._row(int(index)) for index in indices))
        return taken

    def under(self, folder: str) -> Names:
        """Return the names as paths in a folder, but for those that are absolute."""
        found = self._sharing(os.fsencode(folder) + b"/")
        found._rows = self._rows
        return found

    def _sharing(self, folder: bytes) -> Names:
        names = Names()
        names._bytes, names._ends, names._folder = self._bytes, self._ends, folder
        return names

    def unique(self) -> Names:
        """Return each name once, in the order they appear in first."""
        seen: set[int] = set()  # 64 bits of each name, for the names themselves take thrice as much
        first = array("q")
        for index, name in enumerate(self):
            if (key := hash(name)) not in seen:
                seen.add(key)
                first.append(index)
        return self.take(first)

    def _row(self, index: int) -> int:
        return index if self._rows is None else self._rows[index]

    def __len__(self) -> int:
        return len(self._ends) - 1 if self._rows is None else len(self._rows)

    def __iter__(self) -> Iterator[str]:
        for index in range(len(self)):
            yield os.fsdecode(self.encoded(index))

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
