"""Where activations lie in an arena: their lifetimes and a plan of them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from shrink.tflite.model import Subgraph, Tensor, values

ALIGNMENT_BYTES = 16

_BITS = {
    "INT2": 2,
    "INT4": 4,
    "UINT4": 4,
    "INT8": 8,
    "UINT8": 8,
    "BOOL": 8,
    "FLOAT8_E4M3FN": 8,
    "FLOAT8_E5M2": 8,
    "INT16": 16,
    "UINT16": 16,
    "FLOAT16": 16,
    "BFLOAT16": 16,
    "INT64": 64,
    "UINT64": 64,
    "FLOAT64": 64,
    "COMPLEX64": 64,
    "COMPLEX128": 128,
}


@dataclass(frozen=True)
class Lifetime:
    """A block of memory that is needed from operator `first` to operator `last`, both included.

    Attributes:
        offset: where it lies already; None where it is to be placed.
    """

    size_bytes: int
    first: int
    last: int
    offset: int | None = None


def tensor_bytes(tensor: Tensor) -> int:
    """Return the bytes that a tensor's values take, without alignment."""
    return (tensor.elements * _BITS.get(tensor.dtype, 32) + 7) // 8


def lifetimes(graph: Subgraph, offsets: Sequence[int] = ()) -> list[Lifetime]:
    """Return the lifetimes of a subgraph's non-constant tensors.

    Inputs live from the first operator on, outputs to the last one, variables throughout.

    Args:
        graph: the subgraph.
        offsets: of an offline plan, by the tensor's index; below 0 where there is none.
    """
    fixed = dict(enumerate(offsets))
    end = max(len(graph.operators) - 1, 0)
    first: dict[int, int] = dict.fromkeys(graph.inputs, 0)
    last: dict[int, int] = dict.fromkeys(graph.inputs, 0)
    for step, operator in enumerate(graph.operators):
        for index in (*operator.inputs, *operator.outputs):
            first.setdefault(index, step)
            last[index] = step
    last.update(dict.fromkeys(graph.outputs, end))
    for index, tensor in enumerate(graph.tensors):
        if tensor.variable:
            first[index], last[index] = 0, end
    return [
        Lifetime(
            tensor_bytes(graph.tensors[index]),
            first.get(index, 0),
            last[index],
            offset if (offset := fixed.get(index, -1)) >= 0 else None,
        )
        for index in sorted(last)
        if index >= 0 and not graph.tensors[index].constant
    ]


def plan(blocks: Sequence[Lifetime]) -> list[int]:
    """Return an offset for each block, so that no two that live at once overlap.

    As TFLite Micro's GreedyMemoryPlanner places them, to the byte: by size, rounded up to
    ALIGNMENT_BYTES, the largest first and of equal ones the last, each into the lowest gap that
    holds it (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
    algorithm 3). Those that lie somewhere already stay, and come before all others.
    """
    sizes = [aligned(block.size_bytes) for block in blocks]
    offsets = [block.offset or 0 for block in blocks]
    fixed = [index for index, block in enumerate(blocks) if block.offset is not None]
    placed = sorted(fixed, key=lambda index: offsets[index])
    free = [index for index, block in enumerate(blocks) if block.offset is None]
    for index in sorted(reversed(free), key=lambda i: -sizes[i]):
        block = blocks[index]
        offset = 0
        for other in placed:
            if blocks[other].last < block.first or block.last < blocks[other].first:
                continue
            if offset + sizes[index] <= offsets[other]:
                break
            offset = max(offset, offsets[other] + sizes[other])
        offsets[index] = offset
        bisect.insort(placed, index, key=lambda i: offsets[i])
    return offsets


def planned_bytes(graph: Subgraph, offsets: Sequence[int] = ()) -> int:
    """Return the size in bytes of the arena that holds a subgraph's activations.

    Args:
        graph: the subgraph.
        offsets: of an offline plan, by the tensor's index; below 0 where there is none.
    """
    return planned_end(lifetimes(graph, offsets))


def planned_end(blocks: Sequence[Lifetime]) -> int:
    """Return where the plan of some blocks ends, in bytes from its beginning."""
    ends = (o + aligned(b.size_bytes) for o, b in zip(plan(blocks), blocks, strict=True))
    return max(ends, default=0)


def aligned(size_bytes: int) -> int:
    """Return a size rounded up to ALIGNMENT_BYTES."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def wrong_shapes(graph: Subgraph) -> str:
    """Return what is wrong with the stored shapes around SPACE_TO_BATCH_ND; empty for nothing.

    Converters write 1 for a batch that they leave open, also behind SPACE_TO_BATCH_ND, as in
    dilated convolutions. LiteRT computes the shapes anew; TFLite Micro takes them as stored.
    """
    for number, operator in enumerate(graph.operators):
        if operator.name not in ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"):
            continue
        source, block, output = (
            graph.tensors[i] for i in (*operator.inputs[:2], operator.outputs[0])
        )
        sizes = values(block) if block.constant else None
        many, one = (output, source) if operator.name.startswith("SPACE") else (source, output)
        if sizes is None or not many.shape or not one.shape:
            continue
        batch = one.shape[0] * math.prod(sizes.tolist())
        if many.shape[0] != batch:
            return (
                f"operator {number} ({operator.name}) has a batch of {many.shape[0]} in its stored "
                f"shape in place of {batch}; TFLite Micro takes it for true and computes other "
                "outputs than LiteRT. Convert the model again with a batch size of 1"
            )
    return ""
