"""How much of the arena is needed while each operator runs, and by which tensors at the peak."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from shrink.compact.blocks import Block, blocks_of, scratch_blocks
from shrink.compact.graph import Graph
from shrink.contract.compaction import Holder, MemoryMap
from shrink.tflite.memory import lifetimes, live_bytes
from shrink.tflite.model import PLAN_ENTRY


def memory_map(graph: Graph, planned: bool) -> MemoryMap:
    """Return the live bytes of each operator, and what holds the most of them.

    Args:
        graph: whose operators run; of a file as it was read, or what passes made of it.
        planned: whether its file has a plan: bytes are then free after their last use, slices lie
            in what they are cut from, and so on. Without one TFLite Micro keeps tensors whole from
            the operator that writes them to the last one that reads them.
    """
    blocks = blocks_of(graph) if planned else _whole(graph)
    cells = (cell for block in blocks for cell in block.cells)
    live = live_bytes(cells, len(graph.operators))[1:]
    if not live:
        return MemoryMap()
    peak = live.index(max(live))
    return MemoryMap(
        live_bytes=tuple(live),
        origins=graph.origins,
        peak_operator=graph.operators[peak].name,
        holders=_holders(graph, blocks, peak + 1),
    )


def has_plan(graph: Graph) -> bool:
    """Whether the file of a graph, as it was read, says where its activations lie."""
    return any(entry.name == PLAN_ENTRY.encode() for entry in graph.model.metadata or [])


def _whole(graph: Graph) -> list[Block]:
    tensors = [
        Block({index: 0}, [(0, graph.tensors[index].size_bytes, *life)])
        for index, life in lifetimes(graph).items()
    ]
    return tensors + scratch_blocks(graph)


def _holders(graph: Graph, blocks: Sequence[Block], step: int) -> tuple[Holder, ...]:
    """Return the tensors of the file whose bytes are needed in a step, most bytes first.

    Tiles of a tensor count as that tensor; a block of several tensors, as the largest of them.
    """
    held: Counter[tuple[str, int]] = Counter()
    for block in blocks:
        size = sum(end - start for start, end, born, last in block.cells if born <= step <= last)
        name, whole = f"scratch memory of {graph.operators[step - 1].name}", size
        if not block.is_scratch:
            index = max(block.offsets, key=lambda i: (graph.tensors[i].size_bytes, -i))
            tensor = graph.tensors[index]
            assert tensor.stored is not None, "tiles are of tensors of the file"
            name = tensor.name or f"tensor {index}"
            item = tensor.size_bytes // max(1, math.prod(tensor.shape))
            shape = [] if tensor.stored.shape is None else tensor.stored.shape  # None: a scalar
            whole = math.prod(int(dimension) for dimension in shape) * item
        held[name, whole] += size
    return tuple(
        Holder(name=name, live_bytes=live, size_bytes=whole)
        for (name, whole), live in held.most_common()
        if live
    )
