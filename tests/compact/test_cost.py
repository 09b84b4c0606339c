"""What lasts in the arena, against what TFLite Micro allocates; constants."""

from __future__ import annotations

import numpy as np
import pytest

from shrink.compact.arena import allocated_bytes
from shrink.compact.cost import graph_tail, temporary_bytes
from shrink.compact.graph import Graph, write_graph
from shrink.compact.plan import plan
from shrink.compact.read import read_graph
from shrink.compact.schedule import Schedule, Tiling, even_cuts
from shrink.compact.segment import GraphInfo, Segment
from tests.compact.random_tilings import in_tiles, random_tiling
from tests.compact.toys import chain, random_net


def tiled_graph(content: bytes, cuts: tuple[int, ...], kept: bool, upward: bool) -> Graph:
    info = GraphInfo(read_graph(content))
    count = len(info.rules)
    tensors = frozenset(Segment(info, 0, count).outputs if kept else ())
    return in_tiles(info, [Tiling(0, count, cuts, tensors, upward=upward)])


def allocated_tail(graph: Graph) -> int:
    """Return what TFLite Micro allocates beyond the tensors that are planned."""
    found = plan(graph, 200)
    assert temporary_bytes(graph) < found.size_bytes, "planning takes more than the tensors"
    return allocated_bytes(write_graph(graph, found.offsets)) - found.size_bytes


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("tiles", [2, 3])
def test_tiles_add_to_the_arena_what_graph_tail_says(tiles: int, kept: bool) -> None:
    content = chain()
    graph, before = tiled_graph(content, even_cuts(16, tiles), kept, False), read_graph(content)
    added = allocated_tail(graph) - allocated_tail(before)
    # The arena is measured in steps of 16 bytes; one constant more or less would be 24.
    assert graph_tail(graph) - graph_tail(before) == pytest.approx(added, abs=11)


def slice_constants(graph: Graph) -> set[tuple[int, ...]]:
    """Return the different beginnings and sizes that slices of a graph read, without zeros."""
    found = set[tuple[int, ...]]()
    for operator in graph.operators:
        if operator.name == "SLICE":
            found |= {tuple(map(int, graph.values(index))) for index in operator.inputs[1:]}
    return found - {(0, 0, 0, 0)}


@pytest.mark.parametrize("upward", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_schedule_counts_the_constants_that_its_slices_read(seed: int, upward: bool) -> None:
    info = GraphInfo(read_graph(random_net(seed) if seed else chain()))
    rng = np.random.default_rng(seed)
    drawn = [tiling for _ in range(12) if (tiling := random_tiling(info, rng))]
    assert drawn
    for tiling in (one._replace(upward=upward) for one in drawn[:3]):
        schedule = Schedule(Segment(info, tiling.start, tiling.end), tiling)
        graph = in_tiles(info, [tiling])
        count = len(slice_constants(graph))
        assert schedule._constants() == count
