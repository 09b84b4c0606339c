"""Places in the arena: a plan that no operator's reads and writes contradict.

Blocks are placed one after the other, each as low or as high as it can lie below a height; what
finds no place is placed earlier the next time (a search over orders, as of Pisarchyk and Lee,
"Efficient Memory Management for Deep Neural Net Inference", 2020, with restarts). The peak of live
bytes bounds every plan from below, so a plan of that height is the best there is.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shrink.compact.graph import Graph
from shrink.compact.views import Block, blocks_of, peak_bytes
from shrink.tflite.planner import ALIGNMENT_BYTES, aligned

_ATTEMPTS_AN_ORDER = 60
_BRIEF = 4
_SEED = 0
_UNLIMITED = 1 << 62
_NOWHERE = -1
_FIRST, _END = operator.itemgetter(0), operator.itemgetter(1)
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
    height, starts = _Placement(blocks, bound, limit).found(attempts)
    if not starts:
        return None
    offsets = {
        index: start + place
        for start, block in zip(starts, blocks, strict=True)
        for index, place in block.places.items()
    }
    return Plan(offsets, height, bound)


def height_below(blocks: Sequence[Block], steps: int, attempts: int, limit: int) -> int | None:
    """Return the bytes that the lowest plan of these blocks takes that is found below a limit.

    Args:
        blocks: to place.
        steps: operators that run.
        attempts: to place all blocks, where the bound is not met before.
        limit: in bytes.

    Returns:
        None where none is found.
    """
    bound = peak_bytes(blocks, steps)
    if bound >= limit:
        return None
    height, starts = _Placement(blocks, bound, limit).found(attempts)
    return height if starts else None


class _Placement:
    """A search for places of blocks below a limit."""

    def __init__(self, blocks: Sequence[Block], bound: int, limit: int) -> None:
        self._blocks = blocks
        self._bound = bound
        self._random = random.Random(_SEED)
        self._sizes = [block.size_bytes for block in blocks]
        self._conflicts = _conflicts(blocks)
        self._best: list[int] = []
        self._height = limit
        self._attempts = 0

    def found(self, attempts: int) -> tuple[int, list[int]]:
        """Return the height of the lowest plan found in so many attempts, and blocks' starts.

        Returns:
            No starts where none is found.
        """
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
        return self._height, self._best

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
        sizes, conflicts = self._sizes, self._conflicts
        places = [_NOWHERE] * len(sizes)
        for number in order:
            # Open intervals in which the block cannot start, given the others' places.
            forbidden = [
                (place + low, place + high)
                for other, low, high in conflicts[number]
                if (place := places[other]) >= 0
            ]
            most = limit - sizes[number]
            place = _highest(forbidden, most) if high[number] else _lowest(forbidden)
            if place < 0 or place > most:
                return number
            places[number] = place
        height = aligned(max(map(operator.add, places, sizes)))
        if height < self._height:
            self._height, self._best = height, places
        return None


def _lowest(forbidden: list[tuple[int, int]]) -> int:
    place = 0
    forbidden.sort()
    for low, high in forbidden:
        if low >= place:
            break
        if high > place:
            place = aligned(high)
    return place


def _highest(forbidden: list[tuple[int, int]], limit: int) -> int:
    place = limit // ALIGNMENT_BYTES * ALIGNMENT_BYTES
    forbidden.sort(key=_END, reverse=True)
    for low, high in forbidden:
        if high <= place:
            break
        if low < place:
            place = low // ALIGNMENT_BYTES * ALIGNMENT_BYTES
    return place


def _conflicts(blocks: Sequence[Block]) -> list[list[tuple[int, int, int]]]:
    """Return, for each block, the others, and by how much it must not start behind them.

    The intervals are open: a block may start at their ends.
    """
    cells = np.array([(*cell, n) for n, block in enumerate(blocks) for cell in block.cells])
    start, end, first, last, owner = cells.T
    meet = (first[:, None] <= last) & (last[:, None] >= first) & (owner[:, None] < owner)
    ones, others = np.nonzero(meet)
    pairs = owner[ones] * len(blocks) + owner[others]
    lows, highs = start[ones] - end[others], end[ones] - start[others]
    rows = np.lexsort((lows, pairs))
    columns = (pairs[rows].tolist(), lows[rows].tolist(), highs[rows].tolist())
    apart: dict[int, list[tuple[int, int]]] = {
        pair: [interval[1:] for interval in group]
        for pair, group in itertools.groupby(zip(*columns, strict=True), key=_FIRST)
    }
    for number, scratch in enumerate(blocks):
        for one, block in enumerate(blocks) if scratch.is_scratch else ():
            for low, high in _beside(scratch, block):
                first_of_two = one < number
                pair = one * len(blocks) + number if first_of_two else number * len(blocks) + one
                between = (low, high) if first_of_two else (-high, -low)
                apart[pair] = sorted([*apart.get(pair, ()), between])
    conflicts: list[list[tuple[int, int, int]]] = [[] for _ in blocks]
    for pair, intervals in apart.items():
        one, other = divmod(pair, len(blocks))
        for low, high in _united(intervals):
            conflicts[other].append((one, low, high))
            conflicts[one].append((other, -high, -low))
    return conflicts


def _beside(scratch: Block, block: Block) -> Iterator[tuple[int, int]]:
    """Yield by how much work memory must not start behind a block whose tensors are alive."""
    (own,) = scratch.cells
    for cell in block.held:
        if cell.first <= own.first <= cell.last:
            yield cell.start - own.end, cell.end


def _united(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted open intervals, those that overlap as one; ends that touch stay free."""
    found = [intervals[0]]
    for low, high in intervals[1:]:
        if low < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found
