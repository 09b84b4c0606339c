"""In which steps rows of a tensor are needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

Rows: TypeAlias = tuple[int, int, int]
"""Rows [start, end) of a tensor, and a step."""


class Memory(NamedTuple):
    """Rows that lie one behind the other as those of a tensor do.

    Attributes:
        row_bytes: of each.
        written: rows, and the step that writes them.
        read: rows, and a step that reads them, the first step first.
        brief: rows that are wrong, and the step that writes them; nothing reads these.
        lasts: whether something after the last step reads it.
    """

    row_bytes: int
    written: list[Rows]
    read: list[Rows]
    brief: list[Rows]
    lasts: bool = False

    def cells(self, place: int) -> list[tuple[int, int, int, int]]:
        """Return bytes [start, end), and the first and last step in which they are needed.

        Args:
            place: of its first row, in bytes.
        """
        size = self.row_bytes
        found: list[tuple[int, int, int, int]] = []
        for start, end, first, last in lives(self.written, self.read):
            start, end = place + start * size, place + end * size
            if found and found[-1][1:] == (start, first, last):
                start = found.pop()[0]
            found.append((start, end, first, last))
        for start, end, step in self.brief:
            found.append((place + start * size, place + end * size, step, step))
        return found


def live_bytes(memories: Iterable[Memory], steps: int) -> list[int]:
    """Return the bytes that are live in each of the steps, and in step 0."""
    change = [0] * (steps + 2)
    for row_bytes, written, read, brief, lasts in memories:
        for start, end, first, last in lives(written, read):
            size = (end - start) * row_bytes
            change[first] += size
            change[(steps if lasts else last) + 1] -= size
        for start, end, step in brief:
            size = (end - start) * row_bytes
            change[step] += size
            change[step + 1] -= size
    return list(itertools.accumulate(change))


def lives(births: Sequence[Rows], reads: Sequence[Rows]) -> list[tuple[int, int, int, int]]:
    """Return rows with the first and last step in which they are needed.

    Args:
        births: rows, and the step that writes them.
        reads: rows, and a step that reads them, the first step first.
    """
    every: list[tuple[int, int, int, int]] = []
    latest = reads[::-1]
    for start, end, born in births:
        left = [(start, end)] if start < end else []
        found: list[tuple[int, int, int, int]] = []
        for low, high, step in latest:
            if step <= born or not left:
                break
            if low <= start and end <= high:
                found += [(a, b, born, step) for a, b in left]
                left = []
            elif low < end and start < high:
                left = list(_outside(left, low, high, found, (born, step)))
        found += [(a, b, born, born) for a, b in left]
        every += found if len(found) < 2 else sorted(found)
    return every


def _outside(
    rows: Sequence[tuple[int, int]],
    low: int,
    high: int,
    inside: list[tuple[int, int, int, int]],
    steps: tuple[int, int],
) -> Iterator[tuple[int, int]]:
    """Yield the rows outside of [low, high); put those in it with their steps into a list."""
    for start, end in rows:
        if end <= low or high <= start:
            yield start, end
            continue
        if start < low:
            yield start, low
        if high < end:
            yield high, end
        inside.append((max(start, low), min(end, high), *steps))
