"""Places in the arena: a plan that no operator's reads and writes contradict.

Blocks are placed one after the other, each as low or as high as it can lie below a height; what
finds no place is placed earlier the next time (a search over orders, as of Pisarchyk and Lee,
"Efficient Memory Management for Deep Neural Net Inference", 2020, with restarts). The peak of live
bytes bounds every plan from below, so a plan of that height is the best there is.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shrink.compact.graph import Graph
from shrink.compact.layout import Layout, distances, layout_of
from shrink.compact.views import blocks_of
from shrink.tflite.planner import ALIGNMENT_BYTES, aligned

_ATTEMPTS_AN_ORDER = 60
_BRIEF = 4
_SEED = 0
_UNLIMITED = 1 << 62
_NOWHERE = -1
_END = operator.itemgetter(1)
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
    layout = layout_of(blocks)
    bound = layout.peak_bytes(len(graph.operators))
    if bound >= limit:
        return None
    height, starts = _Placement(layout, bound, limit).found(attempts)
    if not starts:
        return None
    offsets = {
        index: start + place
        for start, block in zip(starts, blocks, strict=True)
        for index, place in block.places.items()
    }
    return Plan(offsets, height, bound)


def height_below(layout: Layout, steps: int, attempts: int, limit: int) -> int | None:
    """Return the bytes that the lowest plan of these blocks takes that is found below a limit.

    Args:
        layout: of the blocks to place.
        steps: operators that run.
        attempts: to place all blocks, where the bound is not met before.
        limit: in bytes.

    Returns:
        None where none is found.
    """
    bound = layout.peak_bytes(steps)
    if bound >= limit:
        return None
    height, starts = _Placement(layout, bound, limit).found(attempts)
    return height if starts else None


class _Placement:
    """A search for places of blocks below a limit."""

    def __init__(self, layout: Layout, bound: int, limit: int) -> None:
        self._bound = bound
        self._random = random.Random(_SEED)
        start, end, first, last, _ = layout.cells.T
        begins = layout.begins()
        self._firsts = np.minimum.reduceat(first, begins)
        self._lasts = np.maximum.reduceat(last, begins)
        self._extents = np.maximum.reduceat(end, begins)
        self._areas = np.add.reduceat((end - start) * (last - first + 1), begins)
        self._several = np.diff(np.append(begins, len(first))) > 1
        self._sizes: list[int] = self._extents.tolist()
        self._distances = distances(layout)
        self._best: list[int] = []
        self._height = limit
        self._attempts = 0

    def found(self, attempts: int) -> tuple[int, list[int]]:
        """Return the height of the lowest plan found in so many attempts, and blocks' starts.

        Returns:
            No starts where none is found.
        """
        orders = self._orders()
        for order in orders:
            self._attempt(self._height - ALIGNMENT_BYTES, order, [False] * len(order))
        self._alternate(orders[0])
        while self._height > self._bound and self._attempts < attempts:
            share = self._random.choice((0.0, 0.0, 0.25, 0.5, 0.75))
            gap = int((self._height - self._bound) * share)
            limit = min(aligned(self._bound + gap), self._height - ALIGNMENT_BYTES)
            high_share = self._random.choice((0.0, 0.2, 0.5))
            high = [self._random.random() < high_share for _ in self._sizes]
            self._repair(limit, list(self._random.choice(orders)), high)
        return self._height, self._best

    def _alternate(self, by_size: Sequence[int]) -> None:
        """Try large blocks that last by turns at both ends of the arena, the others between them.

        What one stretch in bands writes, the next one reads: as one shrinks the other grows, and
        between the two lies what is left for tiles, in one piece.
        """
        lasting = self._lasts - self._firsts >= _LASTING
        is_large = (self._extents * _LARGE > self._bound) & lasting
        large = sorted((i for i in by_size if is_large[i]), key=lambda i: int(self._firsts[i]))
        rest = [i for i in by_size if not is_large[i]]
        for share in _ABOVE_BOUND:
            limit = aligned(int(self._bound * (1 + share)))
            for parity in (0, 1):
                if limit < self._height:
                    high = [False] * len(by_size)
                    for place, number in enumerate(large):
                        high[number] = place % 2 == parity
                    self._repair(limit, [*large, *rest], high, most=_BRIEF)

    def _orders(self) -> list[list[int]]:
        """Return orders of the blocks: the largest, the earliest or the latest first."""
        firsts, down = self._firsts, -self._extents
        keys = (
            (firsts, down),
            (-firsts, down),
            (-self._areas,),
            (down, ~self._several),
            (down, firsts),
            (down, -firsts),
        )
        return [np.lexsort(key).tolist() for key in keys]

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
        sizes, near = self._sizes, self._distances.near
        places = [_NOWHERE] * len(sizes)
        for count, number in enumerate(order):
            # Open intervals in which the block cannot start, given the others' places.
            if 2 * count < len(near[number]):
                intervals = self._distances.intervals(number)
                forbidden = [
                    (places[other] + low, places[other] + high)
                    for other in order[:count]
                    if other in intervals
                    for low, high in intervals[other]
                ]
            else:
                forbidden = [
                    (place + low, place + high)
                    for other, low, high in near[number]
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
