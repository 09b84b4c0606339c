"""Random graphs in random row tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shrink.compact.blocks import blocks_of
from shrink.compact.graph import Graph, write_graph
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.compact.schedule import Schedule, Tiling
from shrink.compact.segment import GraphInfo, ImpossibleError, Segment
from shrink.compact.tiling import tiled
from shrink.tflite.memory import Cell, aligned
from tests.compact.toys import random_net


def in_tiles(info: GraphInfo, tilings: Sequence[Tiling]) -> Graph:
    """Return a graph with segments of its operators in row tiles."""
    segments = [(Segment(info, one.start, one.end), one) for one in sorted(tilings)]
    return tiled(info.graph, [(segment, Schedule(segment, one)) for segment, one in segments])


def cells_of(graph: Graph) -> Iterator[Cell]:
    """Yield the cells of all blocks of a graph."""
    return (cell for block in blocks_of(graph) for cell in block.cells)


def random_tiling(info: GraphInfo, rng: np.random.Generator) -> Tiling | None:
    """Return some way to run a segment in tiles; None where the one that was drawn is none."""
    count = len(info.rules)
    start = int(rng.integers(0, count))
    end = int(rng.integers(start + 1, count + 1))
    try:
        segment = Segment(info, start, end)
        drawn = rng.integers(1, max(2, segment.rows), int(rng.integers(1, 13)))
        cuts = tuple(sorted({int(cut) for cut in drawn if cut < segment.rows}))
        share = rng.choice([0.0, 0.5, 1.0])
        kept = frozenset(t for t in segment.outputs if rng.random() < share)
        tiling = Tiling(start, end, cuts, kept, upward=bool(rng.integers(0, 2)))
        Schedule(segment, tiling)
    except ImpossibleError:
        return None
    return tiling


def tiled_file(seed: int, tries: int = 10) -> bytes | None:
    """Return a random graph in random tiles, with its plan; None where no try was possible."""
    info = GraphInfo(read_graph(random_net(seed)))
    rng = np.random.default_rng(seed)
    for _ in range(tries):
        if tiling := random_tiling(info, rng):
            graph = in_tiles(info, [tiling])
            return write_graph(graph, plan(graph, 100).offsets)
    return None


def half_planned_file(seed: int) -> bytes:
    """Return a random graph whose plan gives every second activation a place of its own."""
    graph = read_graph(random_net(seed))
    offsets, end = dict[int, int](), 0
    for index in graph.activations(graph.used())[::2]:
        offsets[index] = end
        end += aligned(graph.tensors[index].size_bytes)
    return write_graph(graph, offsets)
