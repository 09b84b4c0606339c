"""Arenas on 32-bit targets, estimated from those of the x86-64 build of TFLite Micro."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shrink.tflite.memory import Allocation, aligned, allocations, planned_end
from shrink.tflite.model import Operator, Subgraph, Tensor

Scratch = Callable[[Subgraph, Operator], Sequence[int]]
"""Returns the bytes of each scratch buffer that the kernel of an operator asks for."""


@dataclass(frozen=True)
class Kernels:
    """The kernels of a build for 32 bits.

    Attributes:
        operators: persistent bytes that an operator saves compared with the host build, by kind.
        scratch: buffers that a kernel takes while it runs.
    """

    operators: Mapping[str, int]
    scratch: Scratch


_ONCE_BYTES, _OTHER_OPERATOR_BYTES = 446, 32
"""What the interpreter with its allocators, and an operator of another kind, take less."""
_TENSOR_BYTES = 12
"""A TfLiteEvalTensor has 12 bytes, not 24."""
# While it plans: AllocationInfo; GreedyMemoryPlanner::per_buffer_size(); ScratchBufferRequest; and
# some of what lasts is not there yet.
_INFO_BYTES, _BUFFER_BYTES, _REQUEST_BYTES, _PLANNING_BYTES = 24, 40, 12, 24
_HANDLE_BYTES = 4
"""Of what lasts: where a scratch buffer lies."""


def arena_32_bytes(
    graphs: Sequence[Subgraph],
    head_bytes: int,
    tail_bytes: int,
    offsets: Sequence[int],
    kernels: Kernels,
) -> int:
    """Return an estimate of the smallest arena on a 32-bit target, in bytes.

    Activations, scratch buffers and what lasts; or, for hundreds of small tensors, what TFLite
    Micro takes while it plans.

    Args:
        graphs: of the file.
        head_bytes: that activations take in the wheel, with the scratch of reference kernels.
        tail_bytes: that structures and kernels' own data take there.
        offsets: of an offline plan.
        kernels: of the build: CMSIS_NN or REFERENCE.
    """
    tensors = sum(len(graph.tensors) for graph in graphs)
    kinds = Counter(operator.name for graph in graphs for operator in graph.operators)
    blocks = allocations(graphs[0], offsets)
    taken, reference = _taken(graphs[0], kernels.scratch), _taken(graphs[0], REFERENCE.scratch)
    # The difference only: of what is not known of a graph, the wheel's own figure knows.
    more = planned_end([*blocks, *taken]) - planned_end([*blocks, *reference])
    less = _ONCE_BYTES + _TENSOR_BYTES * tensors - _HANDLE_BYTES * (len(taken) - len(reference))
    for name, count in kinds.items():
        less += count * kernels.operators.get(name, _OTHER_OPERATOR_BYTES)
    planning = _PLANNING_BYTES + _INFO_BYTES * tensors + _BUFFER_BYTES * len(blocks)
    planning += (_INFO_BYTES + _BUFFER_BYTES + _REQUEST_BYTES) * len(taken)
    return aligned(max(head_bytes + more, planning) + max(tail_bytes - less, 0))


def _taken(graph: Subgraph, scratch: Scratch) -> list[Allocation]:
    return [
        Allocation(size, step, step)
        for step, operator in enumerate(graph.operators)
        for size in scratch(graph, operator)
    ]


def _read(graph: Subgraph, operator: Operator, place: int) -> Tensor | None:
    if place >= len(operator.inputs) or operator.inputs[place] < 0:
        return None
    return graph.tensors[operator.inputs[place]]


def _reference_scratch(graph: Subgraph, operator: Operator) -> Sequence[int]:
    """Return what an int8 reference kernel takes while it runs."""
    transposed = operator.name == "TRANSPOSE_CONV"
    source = _read(graph, operator, 2 if transposed else 0)
    if source is None or source.dtype != "INT8" or not operator.outputs:
        return ()
    output = graph.tensors[operator.outputs[0]]
    if transposed:
        return (4 * output.elements,)
    if operator.name in ("MEAN", "SUM") and (axes := _read(graph, operator, 1)) is not None:
        return (4 * len(source.shape), 4 * axes.elements, 4 * output.elements)
    return ()


def _cmsis_nn_scratch(graph: Subgraph, operator: Operator) -> Sequence[int]:
    """Return what an int8 kernel of CMSIS-NN takes while it runs, on a Cortex-M4.

    Source: arm_convolve_get_buffer_sizes_s8.c, arm_depthwise_conv_get_buffer_sizes_s8.c,
    arm_avgpool_get_buffer_sizes_s8.c, arm_transpose_conv_get_buffer_sizes_s8.c.
    """
    pools = operator.name == "AVERAGE_POOL_2D"
    if not pools and operator.name not in ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"):
        return _reference_scratch(graph, operator)
    weights = _read(graph, operator, 0 if pools else 1)
    if weights is None or weights.dtype != "INT8" or len(weights.shape) != 4:
        return ()
    _, height, width, channels = weights.shape
    if pools:
        return (4 * channels,)
    if operator.name == "CONV_2D":
        return () if (height, width) == (1, 1) else (_columns_bytes(weights.shape),)
    if operator.name == "TRANSPOSE_CONV":
        return _transposed(graph, operator, weights.shape)
    several = graph.tensors[operator.inputs[0]].shape[-1] != channels
    return () if several or (height, width) == (3, 3) else (2 * height * width * channels,)


def _columns_bytes(kernel: Sequence[int]) -> int:
    """Return the bytes of two columns of int16 values of what a kernel reads."""
    return 16 * -(-kernel[1] * kernel[2] * kernel[3] // 4)


def _transposed(graph: Subgraph, operator: Operator, kernel: Sequence[int]) -> Sequence[int]:
    source, output = _read(graph, operator, 2), graph.tensors[operator.outputs[0]]
    if source is None or len(source.shape) != 4 or len(output.shape) != 4:
        return ()
    channels, height, width, depth = kernel
    down, across = (
        -(-large // small)
        for large, small in zip(output.shape[1:3], source.shape[1:3], strict=True)
    )
    if max(down, across) <= 2 and depth > _REVERSED_FROM:
        return (_columns_bytes(kernel), height * width * depth * channels)
    rows, columns = max(height, down), (source.shape[2] - 1) * across + max(width, down)
    return (4 * rows * columns * channels, 0)


_REVERSED_FROM = 16
"""Channels above which CMSIS-NN runs a transposed convolution as one of a reversed kernel."""

_OPERATORS = {
    "CONV_2D": 48,
    "DEPTHWISE_CONV_2D": 48,
    "TRANSPOSE_CONV": 48,
    "CONCATENATION": 80,
    "FULLY_CONNECTED": 80,
    "MEAN": 56,
    "RESHAPE": 40,
}
REFERENCE = Kernels(_OPERATORS, _reference_scratch)
CMSIS_NN = Kernels(
    _OPERATORS | {"FULLY_CONNECTED": 48, "AVERAGE_POOL_2D": 16, "MAX_POOL_2D": 16},
    _cmsis_nn_scratch,
)
"""With the buffers of a Cortex-M4."""
