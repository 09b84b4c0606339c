"""Places in the arena: a plan that no operator's reads and writes contradict.

Blocks are placed one after the other, each as low as it can lie; what finds no place below a height
is placed earlier in the next attempt (the first orders are those of Pisarchyk and Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020). The peak of live bytes bounds every plan
from below, so a plan of that height is the best there is.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shrink.base.types import Array
from shrink.compact.blocks import Block, blocks_of
from shrink.compact.graph import Graph
from shrink.tflite.memory import ALIGNMENT_BYTES, aligned, live_bytes
from shrink.tflite.model import Subgraph

_LEAST_ATTEMPTS, _ATTEMPTS_A_BLOCK = 120, 2
"""To place all blocks. A failed attempt moves one of them, and where many peaks are equally high,
every other block may have to move."""
_SEED = 0
_UNLIMITED = 1 << 62
_NOWHERE = -1


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


class Planned(NamedTuple):
    """A graph with its plan, and the arena that it takes by estimate."""

    graph: Graph
    plan: Plan
    arena: int


def plan(graph: Subgraph, attempts: int | None = None) -> Plan:
    """Return the lowest plan found; see `plan_below`."""
    found = plan_below(graph, _UNLIMITED, attempts)
    assert found is not None, "without a limit every block finds a place"
    return found


def plan_below(graph: Subgraph, limit: int, attempts: int | None = None) -> Plan | None:
    """Return the lowest plan found that takes fewer bytes than a limit; None where none is found.

    Args:
        graph: its order of operators is kept.
        limit: in bytes.
        attempts: to place all blocks, where the bound is not met before; None for as many as the
            number of blocks calls for.
    """
    blocks = blocks_of(graph)
    cells = (cell for block in blocks for cell in block.cells)
    bound = aligned(max(live_bytes(cells, len(graph.operators))))
    if bound >= limit:
        return None
    if attempts is None:
        attempts = max(_LEAST_ATTEMPTS, _ATTEMPTS_A_BLOCK * len(blocks))
    height, starts = _Placement(blocks, bound, limit).found(attempts)
    if not starts:
        return None
    offsets = {
        index: start + offset
        for start, block in zip(starts, blocks, strict=True)
        for index, offset in block.offsets.items()
    }
    return Plan(offsets, height, bound)


class _Placement:
    """A search for the starts of blocks below a limit."""

    def __init__(self, blocks: Sequence[Block], bound: int, limit: int) -> None:
        self._blocks, self._bound, self._height = blocks, bound, limit
        self._random = random.Random(_SEED)
        self._sizes = [max(cell[1] for cell in block.cells) for block in blocks]
        self._near = _distances(blocks)
        self._best: list[int] = []
        self._attempts = 0

    def found(self, attempts: int) -> tuple[int, list[int]]:
        """Return the height of the lowest plan found in so many attempts, and blocks' starts.

        Of an order that fails below a height, the block that finds no place moves forward.

        Returns:
            No starts where none is found.
        """
        orders = self._orders()
        for order in orders:
            self._attempt(self._height - ALIGNMENT_BYTES, order)
        while self._height > self._bound and self._attempts < attempts:
            halfway = aligned((self._bound + self._height) // 2)
            limit = min(halfway, self._height - ALIGNMENT_BYTES)
            order = list(self._random.choice(orders))
            while self._attempts < attempts and (failed := self._attempt(limit, order)) is not None:
                before = order.index(failed)
                order.insert(self._random.randrange(max(1, before)), order.pop(before))
        return self._height, self._best

    def _orders(self) -> list[list[int]]:
        """Return orders of the blocks: the largest, or those that hold most for longest, first."""
        first = [min(cell[2] for cell in block.cells) for block in self._blocks]
        areas = [sum((b - a) * (v - u + 1) for a, b, u, v in block.cells) for block in self._blocks]
        numbers = range(len(self._sizes))
        return [
            sorted(numbers, key=lambda number: (-self._sizes[number], first[number])),
            sorted(numbers, key=lambda number: -areas[number]),
        ]

    def _attempt(self, limit: int, order: Sequence[int]) -> int | None:
        """Place blocks in this order; keep a better plan.

        Returns:
            The block that finds no place below the limit, or None.
        """
        self._attempts += 1
        sizes = self._sizes
        starts = [_NOWHERE] * len(sizes)
        for number in order:
            # Open intervals in which the block cannot start, given the others' starts.
            forbidden = [
                (start + low, start + high)
                for other, low, high in self._near[number]
                if (start := starts[other]) >= 0
            ]
            starts[number] = _lowest(forbidden)
            if starts[number] + sizes[number] > limit:
                return number
        height = aligned(max(map(operator.add, starts, sizes)))
        if height < self._height:
            self._height, self._best = height, starts
        return None


def _lowest(forbidden: list[tuple[int, int]]) -> int:
    start = 0
    forbidden.sort()
    for low, high in forbidden:
        if low >= start:
            break
        if high > start:
            start = aligned(high)
    return start


def _distances(blocks: Sequence[Block]) -> list[list[tuple[int, int, int]]]:
    """Return, for each block, others with which it shares a step, and how they keep apart.

    Behind the number of the other one are the ends of an open interval: the block must not start
    so many bytes behind the other one's start. Intervals of a pair that overlap are one.
    """
    count = len(blocks)
    flat = [(*cell, number) for number, block in enumerate(blocks) for cell in block.cells]
    start, end, first, last, owner = np.array(flat, np.int64).T
    ones, others = np.nonzero(
        (first[:, None] <= last) & (last[:, None] >= first) & (owner[:, None] < owner)
    )
    pairs = owner[ones] * count + owner[others]
    found = (pairs, start[ones] - end[others], end[ones] - start[others])
    if scratch := list(_beside_scratch(blocks)):
        added = np.array(scratch, np.int64).T
        pairs, low, high = (np.concatenate(both) for both in zip(found, added, strict=True))
        found = (pairs, low, high)
    pairs, low, high = _united(*found)
    one, other = np.divmod(pairs, count)
    numbers, partners = np.append(other, one), np.append(one, other)
    lows, highs = np.append(low, -high), np.append(high, -low)
    rows = np.argsort(numbers, kind="stable")
    every = list(zip(*(column[rows].tolist() for column in (partners, lows, highs)), strict=True))
    edges = np.searchsorted(numbers[rows], np.arange(count + 1)).tolist()
    return [every[start:end] for start, end in itertools.pairwise(edges)]


def _united(pairs: Array, lows: Array, highs: Array) -> tuple[Array, Array, Array]:
    """Return open intervals of pairs, sorted, those of a pair that overlap as one.

    Ends that touch stay free. All pairs stand on one line, far enough from each other.
    """
    if not len(pairs):
        return pairs, lows, highs
    rows = np.lexsort((lows, pairs))
    pairs, lows, highs = pairs[rows], lows[rows], highs[rows]
    new_pair = np.ones(len(pairs), bool)
    new_pair[1:] = pairs[1:] != pairs[:-1]
    span = int(highs.max() - lows.min()) + 1
    shift = np.cumsum(new_pair) * span
    reached = np.maximum.accumulate(highs + shift)
    new = new_pair.copy()
    new[1:] |= lows[1:] + shift[1:] >= reached[:-1]
    heads = np.flatnonzero(new)
    tails = np.append(heads[1:], len(pairs)) - 1
    return pairs[heads], lows[heads], reached[tails] - shift[tails]


def _beside_scratch(blocks: Sequence[Block]) -> Iterator[tuple[int, int, int]]:
    """Yield by how much tensors must not start beside scratch memory, while they are alive whole.

    As a pair's number, and the lower and the upper end of an interval.
    """
    for number, scratch in enumerate(blocks):
        if not scratch.is_scratch:
            continue
        ((_, size, step, _),) = scratch.cells
        for one, block in enumerate(blocks):
            for start, end, first, last in block.whole:
                if first <= step <= last and one < number:
                    yield one * len(blocks) + number, start - size, end
                elif first <= step <= last:
                    yield number * len(blocks) + one, -end, size - start
