"""What operators cost: bytes of the arena that last, and multiply-accumulates."""

from __future__ import annotations

from typing import NamedTuple

from shrink.graph.macs import UnknownMacsError, operator_macs
from shrink.tflite.memory import aligned
from shrink.tflite.model import Operator, Subgraph


class Cost(NamedTuple):
    """What a segment of operators costs.

    Attributes:
        peak_bytes: the most bytes of activations that are live at once.
        tail_bytes: what lasts: structures of tensors and operators, and kernels' own.
        macs: multiply-accumulates.
    """

    peak_bytes: int
    tail_bytes: int
    macs: int


# Measured: differences between the sizes that the tflite-micro build of PyPI (x86-64) prints for 60
# pairs of models that differ in some operators, within 10 bytes each.
TENSOR_BYTES = 24
"""Of the arena, for each tensor that is read or written, constants too."""
OPERATOR_BYTES = {
    "CONV_2D": 172,
    "DEPTHWISE_CONV_2D": 171,
    "SLICE": 64,
    "CONCATENATION": 152,
    "PAD": 129,
    "ADD": 134,
    "MAX_POOL_2D": 133,
    "AVERAGE_POOL_2D": 134,
    "RELU": 95,
}
_OTHER_OPERATOR_BYTES = 130
_PLANNING_BYTES = 29, 44, 1000
"""Of each tensor, of each activation more, and once, while TFLite Micro plans."""
_SUM_BYTES = {"INT8": 4, "INT16": 8}
_BY_CHANNEL = {"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"}


def macs_of(graph: Subgraph, operator: Operator) -> int:
    """Return an operator's multiply-accumulates; 0 where they are not known."""
    try:
        return operator_macs(graph, operator)
    except UnknownMacsError:
        return 0


def graph_macs(graph: Subgraph) -> int:
    """Return the multiply-accumulates of all operators."""
    return sum(macs_of(graph, operator) for operator in graph.operators)


def scratch_bytes(graph: Subgraph, operator: Operator) -> int:
    """Return the bytes of scratch memory that an operator takes in the arena while it runs.

    A transposed convolution adds up its whole output in int32, or in int64 where that is int16;
    TFLite Micro finds a place for it beside the tensors that it believes to be alive.
    """
    if operator.name != "TRANSPOSE_CONV":
        return 0
    output = graph.tensors[operator.outputs[0]]
    return _SUM_BYTES.get(output.dtype, 0) * output.elements


def tail_of(graph: Subgraph, operator: Operator) -> int:
    """Return the bytes that an operator and its outputs take for good.

    A convolution holds a multiplier and a shift for each channel of its output.
    """
    found = OPERATOR_BYTES.get(operator.name, _OTHER_OPERATOR_BYTES)
    return found + channels_tail(graph, operator) + TENSOR_BYTES * len(operator.outputs)


def channels_tail(graph: Subgraph, operator: Operator) -> int:
    """Return the part of `tail_of` that grows with the channels of the output."""
    if operator.name not in _BY_CHANNEL or not operator.outputs:
        return 0
    return 2 * aligned(4 * graph.tensors[operator.outputs[0]].shape[-1])


def graph_tail(graph: Subgraph) -> int:
    """Return the bytes that all operators, their outputs and all constants take for good."""
    used = graph.used()
    constants = len(used) - len(graph.activations(used))
    return TENSOR_BYTES * constants + sum(tail_of(graph, one) for one in graph.operators)


def temporary_bytes(graph: Subgraph) -> int:
    """Return what TFLite Micro takes beside what lasts while it plans, and gives back.

    With hundreds of tensors this is more than they hold.
    """
    used = graph.used()
    per_tensor, per_activation, base = _PLANNING_BYTES
    return per_tensor * len(used) + per_activation * len(graph.activations(used)) + base
