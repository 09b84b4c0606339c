"""Places in the arena: a plan that no operator's reads and writes contradict.

Blocks are placed one after the other, each as low or as high as it can lie below a height; what
finds no place is placed earlier the next time (a search over orders, as of Pisarchyk and Lee,
"Efficient Memory Management for Deep Neural Net Inference", 2020, with restarts). The peak of live
bytes bounds every plan from below, so a plan of that height is the best there is.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shrink.compact.graph import Graph
from shrink.compact.views import Block, blocks_of, peak_bytes
from shrink.tflite.planner import ALIGNMENT_BYTES, aligned

_ATTEMPTS_AN_ORDER = 60
_BRIEF = 4
_SEED = 0
_UNLIMITED = 1 << 62
_LARGE, _LASTING = 12, 6
"""A block of at least a twelfth of the arena, needed for at least so many steps."""
_ABOVE_BOUND = (0.0, 0.02, 0.05, 0.1)


class Plan(NamedTuple):
    """Where each activation lies.

    Attributes:
        offsets: bytes from the start of the arena, by tensor.
        size_bytes: of the arena's part that holds them, to 16 bytes.
        bound_bytes: what no plan of these blocks can be below.
    """

    offsets: Mapping[int, int]
    size_bytes: int
    bound_bytes: int


def plan(graph: Graph, attempts: int) -> Plan:
    """Return the lowest plan found.

    Args:
        graph: its order of operators is kept.
        attempts: to place all blocks, where the bound is not met before.
    """
    found = plan_below(graph, attempts, _UNLIMITED)
    assert found is not None, "without a limit every block finds a place"
    return found


def plan_below(graph: Graph, attempts: int, limit: int) -> Plan | None:
    """Return the lowest plan found that takes fewer bytes than a limit; None where none is found.

    Args:
        graph: its order of operators is kept.
        attempts: to place all blocks, where the bound is not met before.
        limit: in bytes.
    """
    blocks = blocks_of(graph)
    bound = peak_bytes(blocks, len(graph.operators))
    if bound >= limit:
        return None
    return _Placement(blocks, bound, limit).plan(attempts)


class _Placement:
    """A search for places of blocks below a limit."""

    def __init__(self, blocks: Sequence[Block], bound: int, limit: int) -> None:
        self._blocks = blocks
        self._bound = bound
        self._random = random.Random(_SEED)
        self._sizes = [block.size_bytes for block in blocks]
        self._conflicts = _conflicts(blocks)
        self._best: dict[int, int] = {}
        self._height = limit
        self._attempts = 0

    def plan(self, attempts: int) -> Plan | None:
        """Return the lowest plan found in so many attempts."""
        orders = [sorted(range(len(self._blocks)), key=key) for key in self._keys()]
        for order in orders:
            self._attempt(self._height - ALIGNMENT_BYTES, order, [False] * len(order))
        self._alternate(orders[0])
        while self._height > self._bound and self._attempts < attempts:
            share = self._random.choice((0.0, 0.0, 0.25, 0.5, 0.75))
            gap = int((self._height - self._bound) * share)
            limit = min(aligned(self._bound + gap), self._height - ALIGNMENT_BYTES)
            high_share = self._random.choice((0.0, 0.2, 0.5))
            high = [self._random.random() < high_share for _ in self._blocks]
            self._repair(limit, list(self._random.choice(orders)), high)
        if not self._best:
            return None
        offsets = {
            index: self._best[number] + place
            for number, block in enumerate(self._blocks)
            for index, place in block.places.items()
        }
        return Plan(offsets, self._height, self._bound)

    def _alternate(self, by_size: Sequence[int]) -> None:
        """Try large blocks that last by turns at both ends of the arena, the others between them.

        What one stretch in bands writes, the next one reads: as one shrinks the other grows, and
        between the two lies what is left for tiles, in one piece.
        """
        firsts = [min(cell.first for cell in block.cells) for block in self._blocks]
        lasts = [max(cell.last for cell in block.cells) for block in self._blocks]
        large = [
            i
            for i in by_size
            if self._sizes[i] * _LARGE > self._bound and lasts[i] - firsts[i] >= _LASTING
        ]
        large.sort(key=lambda i: firsts[i])
        rest = [i for i in by_size if i not in set(large)]
        for share in _ABOVE_BOUND:
            limit = aligned(int(self._bound * (1 + share)))
            for parity in (0, 1):
                if limit < self._height:
                    high = [False] * len(by_size)
                    for place, number in enumerate(large):
                        high[number] = place % 2 == parity
                    self._repair(limit, [*large, *rest], high, most=_BRIEF)

    def _keys(self) -> list[Callable[[int], tuple[float, ...]]]:
        sizes, blocks = self._sizes, self._blocks
        areas = [sum((c.end - c.start) * (c.last - c.first + 1) for c in b.cells) for b in blocks]
        firsts = [min(cell.first for cell in block.cells) for block in blocks]
        return [
            lambda i: (-sizes[i], firsts[i]),
            lambda i: (-sizes[i], -firsts[i]),
            lambda i: (-areas[i],),
            lambda i: (len(blocks[i].cells) == 1, -sizes[i]),
            lambda i: (firsts[i], -sizes[i]),
            lambda i: (-firsts[i], -sizes[i]),
        ]

    def _repair(
        self, limit: int, order: list[int], high: list[bool], most: int = _ATTEMPTS_AN_ORDER
    ) -> None:
        """Try an order below a height; move what finds no place to its front, and try again."""
        for _ in range(most):
            failed = self._attempt(limit, order, high)
            if failed is None:
                return
            order.remove(failed)
            front = self._random.random() < 0.5
            place = 0 if front else self._random.randrange(max(1, len(order) // 4))
            order.insert(place, failed)
            if self._random.random() < 0.3:
                high[failed] = not high[failed]
            if self._random.random() < 0.15:
                other = self._random.randrange(len(high))
                high[other] = not high[other]

    def _attempt(self, limit: int, order: Sequence[int], high: Sequence[bool]) -> int | None:
        """Place blocks in this order; keep a better plan.

        Returns:
            The block that finds no place below the limit, or None.
        """
        self._attempts += 1
        places: dict[int, int] = {}
        for number in order:
            forbidden = self._forbidden(number, places)
            size = self._sizes[number]
            place = _highest(forbidden, limit - size) if high[number] else _lowest(forbidden)
            if place < 0 or place + size > limit:
                return number
            places[number] = place
        height = aligned(max(places[number] + self._sizes[number] for number in order))
        if height < self._height:
            self._height, self._best = height, places
        return None

    def _forbidden(self, number: int, places: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return the open intervals in which a block cannot start, given others' places."""
        found = []
        for other, intervals in self._conflicts[number]:
            if other in places:
                base = places[other]
                found += [(base + low, base + high) for low, high in intervals]
        return found


def _lowest(forbidden: list[tuple[int, int]]) -> int:
    place = 0
    for low, high in sorted(forbidden):
        if low >= place:
            break
        if high > place:
            place = aligned(high)
    return place


def _highest(forbidden: list[tuple[int, int]], limit: int) -> int:
    place = limit // ALIGNMENT_BYTES * ALIGNMENT_BYTES
    for low, high in sorted(forbidden, key=lambda pair: -pair[1]):
        if high <= place:
            break
        if low < place:
            place = low // ALIGNMENT_BYTES * ALIGNMENT_BYTES
    return place


def _conflicts(blocks: Sequence[Block]) -> list[list[tuple[int, list[tuple[int, int]]]]]:
    """Return, for each block, the others, and by how much it must not start behind them.

    The intervals are open: a block may start at their ends.
    """
    cells = np.array([(*cell, n) for n, block in enumerate(blocks) for cell in block.cells])
    found: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    start, end, first, last, owner = cells.T
    for row in range(len(cells)):
        meets = (first <= last[row]) & (last >= first[row]) & (owner != owner[row])
        lows, highs = start[row] - end[meets], end[row] - start[meets]
        for other, low, high in zip(
            owner[meets].tolist(), lows.tolist(), highs.tolist(), strict=True
        ):
            found[other, int(owner[row])].append((low, high))
    conflicts: list[list[tuple[int, list[tuple[int, int]]]]] = [[] for _ in blocks]
    for (number, other), intervals in found.items():
        conflicts[number].append((other, _united(sorted(intervals))))
    return conflicts


def _united(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted open intervals, those that overlap as one; ends that touch stay free."""
    found = [intervals[0]]
    for low, high in intervals[1:]:
        if low < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found
