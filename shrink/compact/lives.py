"""In which steps rows of a tensor are needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

Rows: TypeAlias = tuple[int, int, int]
"""Rows [start, end) of a tensor, and a step."""


class Memory(NamedTuple):
    """Rows that lie one behind the other as those of a tensor do.

    Attributes:
        row_bytes: of each.
        written: rows, and the step that writes them.
        read: rows, and a step that reads them.
        brief: rows that are wrong, and the step that writes them; nothing reads these.
    """

    row_bytes: int
    written: Sequence[Rows]
    read: Sequence[Rows]
    brief: Sequence[Rows]


def lives(births: Sequence[Rows], reads: Sequence[Rows]) -> Iterator[tuple[int, int, int, int]]:
    """Yield rows with the first and last step in which they are needed."""
    for start, end, born in births:
        edges = {start, end}
        for low, high, _ in reads:
            if start < low < end:
                edges.add(low)
            if start < high < end:
                edges.add(high)
        ordered = sorted(edges)
        for low, high in itertools.pairwise(ordered):
            last = born
            for first, behind, step in reads:
                if first <= low < behind and step > last:
                    last = step
            yield low, high, born, last
