"""What operators cost: bytes of the arena that last, and multiply-accumulates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ai_edge_litert import schema_py_generated as schema

from shrink.compact.graph import Graph, Operator
from shrink.tflite.planner import aligned

BuiltinOperator = schema.BuiltinOperator


class Cost(NamedTuple):
    """What a stretch of operators costs.

    Attributes:
        peak_bytes: the most bytes of activations that are live at once.
        tail_bytes: what lasts: structures of tensors and operators, and kernels' own.
        macs: multiply-accumulates.
        operators: how many.
    """

    peak_bytes: int
    tail_bytes: int
    macs: int
    operators: int


class Memory(NamedTuple):
    """What TFLite Micro's own structures take in the arena, in bytes.

    Measured: differences between the sizes that it prints for models that differ in some operators.

    Attributes:
        tensor: each that is read or written, constants too.
        operators: each of a kind, by its name.
        other_operator: of another kind.
        temporary: of each tensor, of each activation more, and once, while it plans.
    """

    tensor: int
    operators: Mapping[str, int]
    other_operator: int
    temporary: tuple[int, int, int]


WHEEL = Memory(
    tensor=24,
    operators={
        "CONV_2D": 172,
        "DEPTHWISE_CONV_2D": 171,
        "SLICE": 64,
        "CONCATENATION": 152,
        "PAD": 129,
        "ADD": 134,
        "MAX_POOL_2D": 133,
        "AVERAGE_POOL_2D": 134,
        "RELU": 95,
    },
    other_operator=130,
    temporary=(29, 44, 1000),
)
"""The stock wheel of TFLite Micro, of 64 bits. 60 pairs of models, within 10 bytes each."""
_SUM_BYTES = {schema.TensorType.INT8: 4, schema.TensorType.INT16: 8}
_BY_CHANNEL = {"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"}


def macs_of(graph: Graph, operator: Operator) -> int:
    """Return an operator's multiply-accumulates."""
    if not operator.outputs:
        return 0
    output = math.prod(graph.tensors[operator.outputs[0]].shape)
    builtin = operator.code.builtin
    if builtin == BuiltinOperator.CONV_2D:
        return output * math.prod(graph.tensors[operator.inputs[1]].shape[1:])
    if builtin == BuiltinOperator.DEPTHWISE_CONV_2D:
        return output * math.prod(graph.tensors[operator.inputs[1]].shape[1:3])
    if builtin == BuiltinOperator.FULLY_CONNECTED:
        rows = output // max(1, graph.tensors[operator.inputs[1]].shape[0])
        return rows * math.prod(graph.tensors[operator.inputs[1]].shape)
    if builtin == BuiltinOperator.TRANSPOSE_CONV:
        kernel = graph.tensors[operator.inputs[1]].shape
        return math.prod(graph.tensors[operator.inputs[2]].shape) * math.prod(kernel[:3])
    return 0


def scratch_bytes(graph: Graph, operator: Operator) -> int:
    """Return the bytes of work memory that an operator takes in the arena while it runs.

    A transposed convolution adds up its whole output in int32, or in int64 where that is int16;
    TFLite Micro finds a place for it beside the tensors that it believes to be alive.
    """
    if operator.code.builtin != BuiltinOperator.TRANSPOSE_CONV:
        return 0
    output = graph.tensors[operator.outputs[0]]
    return _SUM_BYTES.get(output.type, 0) * math.prod(output.shape)


def tail_of(graph: Graph, operator: Operator) -> int:
    """Return the bytes that an operator and its outputs take for good.

    A convolution holds a multiplier and a shift for each channel of its output.
    """
    found = WHEEL.operators.get(operator.name, WHEEL.other_operator)
    return found + channels_tail(graph, operator) + WHEEL.tensor * len(operator.outputs)


def channels_tail(graph: Graph, operator: Operator) -> int:
    """Return the part of `tail_of` that grows with the channels of the output."""
    if operator.name not in _BY_CHANNEL or not operator.outputs:
        return 0
    return 2 * aligned(4 * graph.tensors[operator.outputs[0]].shape[-1])


def graph_tail(graph: Graph) -> int:
    """Return the bytes that all operators, their outputs and all constants take for good."""
    used = graph.used()
    constants = len(used) - len(graph.activations(used))
    return WHEEL.tensor * constants + sum(tail_of(graph, one) for one in graph.operators)


def temporary_bytes(graph: Graph) -> int:
    """Return what TFLite Micro takes beside what lasts while it plans, and gives back.

    With hundreds of tensors this is more than they hold.
    """
    used = graph.used()
    activations = len(graph.activations(used))
    per_tensor, per_activation, base = WHEEL.temporary
    return per_tensor * len(used) + per_activation * activations + base


def graph_macs(graph: Graph) -> int:
    """Return the multiply-accumulates of all operators."""
    return sum(macs_of(graph, operator) for operator in graph.operators)
