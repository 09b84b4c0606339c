"""Where activations lie in an arena: their lifetimes and a plan of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shrink.tflite.structure import Operator, Subgraph, Tensor

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

    Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
    Inference", 2020, algorithm 3): the largest first, each into the lowest gap that holds it. Those
    that lie somewhere already stay, and come before all others.
    """
    offsets = [block.offset or 0 for block in blocks]
    placed = [index for index, block in enumerate(blocks) if block.offset is not None]
    free = [index for index, block in enumerate(blocks) if block.offset is None]
    for index in sorted(free, key=lambda i: -blocks[i].size_bytes):
        block = blocks[index]
        offset = 0
        for other in sorted(placed, key=lambda i: offsets[i]):
            if blocks[other].last < block.first or block.last < blocks[other].first:
                continue
            if offset + block.size_bytes <= offsets[other]:
                break
            offset = max(offset, aligned(offsets[other] + blocks[other].size_bytes))
        offsets[index] = offset
        placed.append(index)
    return offsets


def planned_bytes(graph: Subgraph, offsets: Sequence[int] = ()) -> int:
    """Return the size in bytes of the arena that holds a subgraph's activations.

    Args:
        graph: the subgraph.
        offsets: of an offline plan, by the tensor's index; below 0 where there is none.
    """
    blocks = lifetimes(graph, offsets)
    ends = (o + b.size_bytes for o, b in zip(plan(blocks), blocks, strict=True))
    return aligned(max(ends, default=0))


# What lasts on 32-bit targets is less than in the wheel, by figures of both for nine networks of 13
# to 273 operators; the sums are within 75 bytes for each. A TfLiteEvalTensor has 12 bytes, not 24.
_TENSOR_BYTES, _CONVOLUTION_BYTES, _OPERATOR_BYTES, _ONCE_BYTES = 12, 49, 29, 490
# While it plans: AllocationInfo; GreedyMemoryPlanner::per_buffer_size(); ScratchBufferRequest.
_INFO_BYTES, _BUFFER_BYTES, _REQUEST_BYTES, _PLANNING_BYTES = 24, 40, 12, 268
_CONVOLUTIONS = {"CONV_2D", "DEPTHWISE_CONV_2D"}


def arena_32_bytes(
    graphs: Sequence[Subgraph], head_bytes: int, tail_bytes: int, offsets: Sequence[int] = ()
) -> int:
    """Return an estimate of the smallest arena on a 32-bit target with CMSIS-NN, in bytes.

    Activations, scratch buffers and what lasts; or, for hundreds of small tensors, what TFLite
    Micro takes while it plans. Within 0.1 % of builds of TFLite Micro (commit 90b983c, CMSIS-NN
    with the buffers of a Cortex-M4, 32-bit x86) for nine networks.

    Args:
        graphs: of the file.
        head_bytes: that activations take in the wheel.
        tail_bytes: that structures and kernels' own data take there.
        offsets: of an offline plan.
    """
    tensors = sum(len(graph.tensors) for graph in graphs)
    names = [operator.name for graph in graphs for operator in graph.operators]
    convolutions = sum(name in _CONVOLUTIONS for name in names)
    tail = tail_bytes - _ONCE_BYTES - _TENSOR_BYTES * tensors
    tail -= _CONVOLUTION_BYTES * convolutions + _OPERATOR_BYTES * (len(names) - convolutions)
    blocks = lifetimes(graphs[0])
    scratch = [_scratch_bytes(graphs[0], operator) for operator in graphs[0].operators]
    if offsets:  # lifetimes of whole tensors say too much of what is live then
        head = head_bytes + max(scratch, default=0)
    else:
        live = [0] * len(scratch)
        for block in blocks:
            for step in range(block.first, min(block.last + 1, len(live))):
                live[step] += aligned(block.size_bytes)
        both = (a + aligned(b) for a, b in zip(live, scratch, strict=True))
        head = max(head_bytes, *both, 0)
    requests = sum(size > 0 for size in scratch)
    planning = _PLANNING_BYTES + _INFO_BYTES * tensors + _BUFFER_BYTES * len(blocks)
    planning += (_INFO_BYTES + _BUFFER_BYTES + _REQUEST_BYTES) * requests
    return aligned(max(head, planning) + max(tail, 0))


def _scratch_bytes(graph: Subgraph, operator: Operator) -> int:
    """Return what an int8 kernel of CMSIS-NN takes while it runs, on a Cortex-M4.

    Source: arm_convolve_get_buffer_sizes_s8.c, arm_depthwise_conv_get_buffer_sizes_s8.c.
    """
    if not operator.inputs or graph.tensors[operator.inputs[0]].dtype != "INT8":
        return 0
    if operator.name == "AVERAGE_POOL_2D":
        return 4 * graph.tensors[operator.inputs[0]].shape[-1]
    if operator.name not in _CONVOLUTIONS or len(operator.inputs) < 2:
        return 0
    height, width, channels = (1, 1, 1, *graph.tensors[operator.inputs[1]].shape)[-3:]
    if operator.name == "CONV_2D":
        return 0 if (height, width) == (1, 1) else 16 * -(-height * width * channels // 4)
    return 0 if (height, width) == (3, 3) else 2 * height * width * channels


def aligned(size_bytes: int) -> int:
    """Return a size rounded up to ALIGNMENT_BYTES."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
