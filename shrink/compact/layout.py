"""Blocks as an array of their cells, and how far each must keep from the others.

A search plans thousands of choices of bands; with arrays, what does not depend on places is found
without a loop over pairs of blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shrink.base.types import Array
from shrink.compact.views import Block, Cell
from shrink.tflite.planner import aligned


class Layout(NamedTuple):
    """Blocks to place.

    Attributes:
        cells: int64, shape (cells, 5): start, end, first step, last step and number of the block,
            those of a block one after the other, in the order of the blocks.
        blocks: how many.
        scratch: work memory, by its number, and all blocks, where there is any.
    """

    cells: Array
    blocks: int
    scratch: Sequence[tuple[int, Block, Sequence[Block]]] = ()

    def begins(self) -> Array:
        """Return the place of each block's first cell."""
        return np.searchsorted(self.cells[:, 4], np.arange(self.blocks))

    def peak_bytes(self, steps: int) -> int:
        """Return the most bytes that are needed at once: no plan of these blocks takes fewer."""
        start, end, first, last, _ = self.cells.T
        change = np.zeros(steps + 2, np.int64)
        np.add.at(change, first, end - start)
        np.subtract.at(change, last + 1, end - start)
        return aligned(int(np.cumsum(change[:-1]).max()))


class Distances:
    """By how much blocks must not start behind others; the intervals are open.

    Args:
        blocks: how many.
        columns: int64: one block, another, and the lower and upper end of an interval in which the
            second must not start, counted from the start of the first.

    Attributes:
        near: of blocks, the others with which they share a step, and lower and upper ends.
    """

    def __init__(self, blocks: int, columns: tuple[Array, Array, Array, Array]) -> None:
        one, other, low, high = columns
        numbers, partners = np.append(other, one), np.append(one, other)
        lows, highs = np.append(low, -high), np.append(high, -low)
        rows = np.argsort(numbers, kind="stable")
        found = [column[rows].tolist() for column in (partners, lows, highs)]
        every = list(zip(*found, strict=True))
        edges = np.searchsorted(numbers[rows], np.arange(blocks + 1)).tolist()
        self.near: list[list[tuple[int, int, int]]] = [
            every[start:end] for start, end in itertools.pairwise(edges)
        ]
        self._intervals: dict[int, dict[int, list[tuple[int, int]]]] = {}

    def intervals(self, number: int) -> dict[int, list[tuple[int, int]]]:
        """Return lower and upper ends for a block, by the other block."""
        if number not in self._intervals:
            found: dict[int, list[tuple[int, int]]] = {}
            for other, low, high in self.near[number]:
                found.setdefault(other, []).append((low, high))
            self._intervals[number] = found
        return self._intervals[number]


def layout_of(blocks: Sequence[Block]) -> Layout:
    """Return the layout of blocks."""
    cells = [(*cell, number) for number, block in enumerate(blocks) for cell in block.cells]
    scratch = [(n, block, blocks) for n, block in enumerate(blocks) if block.is_scratch]
    return Layout(as_cells(cells), len(blocks), scratch)


def as_cells(cells: Sequence[tuple[int, int, int, int, int]]) -> Array:
    """Return cells with the numbers of their blocks as an array."""
    flat = np.fromiter(itertools.chain.from_iterable(cells), np.int64, 5 * len(cells))
    return flat.reshape(-1, 5)


def distances(layout: Layout) -> Distances:
    """Return by how much blocks must not start behind others."""
    start, end, first, last, owner = layout.cells.T
    count = layout.blocks
    meet = (first[:, None] <= last) & (last[:, None] >= first) & (owner[:, None] < owner)
    ones, others = np.nonzero(meet)
    pairs = owner[ones] * count + owner[others]
    found = _united(pairs, start[ones] - end[others], end[ones] - start[others])
    if layout.scratch:
        found = _united(*map(np.concatenate, zip(found, _beside_all(layout), strict=True)))
    pairs, low, high = found
    return Distances(count, (*np.divmod(pairs, count), low, high))


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
    places = np.flatnonzero(new)
    behind = np.append(places[1:], len(pairs)) - 1
    return pairs[places], lows[places], reached[behind] - shift[behind]


def _beside_all(layout: Layout) -> tuple[Array, Array, Array]:
    """Return by how much blocks and work memory must not start behind one another."""
    found: list[tuple[int, int, int]] = []
    for number, scratch, blocks in layout.scratch:
        for one, block in enumerate(blocks):
            for low, high in _beside(scratch, block):
                if one < number:
                    found.append((one * layout.blocks + number, low, high))
                else:
                    found.append((number * layout.blocks + one, -high, -low))
    pairs, lows, highs = np.array(found, np.int64).reshape(-1, 3).T
    return pairs, lows, highs


def _beside(scratch: Block, block: Block) -> Iterator[tuple[int, int]]:
    """Yield by how much work memory must not start behind a block whose tensors are alive."""
    (own,) = scratch.cells
    for cell in block.held:
        if cell.first <= own.first <= cell.last:
            yield cell.start - own.end, cell.end


def united_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Return cells of which no two hold the same byte in the same step."""
    edges = sorted({edge for cell in cells for edge in cell[:2]})
    found: list[Cell] = []
    for start, end in itertools.pairwise(edges):
        times = sorted(cell[2:] for cell in cells if cell.start <= start < cell.end)
        for first, last in times:
            if found and found[-1].start == start and first <= found[-1].last:
                found[-1] = found[-1]._replace(last=max(last, found[-1].last))
            else:
                found.append(Cell(start, end, first, last))
    return found
