"""Multiply-accumulates of one inference, by walking the operators of a .tflite file."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.oracle.flatbuffer import File, Graph, Operator, Tensor, read


class UnknownCost(Exception):
    """An operator whose multiplications the file does not tell."""


def count_macs(path: Path) -> int | None:
    """Return the multiplications of weights and products of activations at a batch of one.

    A loop counts as often as it runs. None where the number of rounds is not in the file.
    """
    file = read(path)
    try:
        return _graph_macs(file, 0)
    except UnknownCost:
        return None


def _graph_macs(file: File, index: int) -> int:
    return sum(_operator_macs(file, file.graphs[index], op) for op in file.graphs[index].operators)


def _operator_macs(file: File, graph: Graph, op: Operator) -> int:
    if op.name == "WHILE":
        rounds = _rounds(file, graph, op)
        body = _graph_macs(file, op.options.bodySubgraphIndex)
        return rounds * (body + _graph_macs(file, op.options.condSubgraphIndex)) if body else 0
    if op.name == "IF":
        branches = (op.options.thenSubgraphIndex, op.options.elseSubgraphIndex)
        return max(_graph_macs(file, branch) for branch in branches)
    if op.name in ("CALL", "CALL_ONCE"):
        at = op.options.subgraph if op.name == "CALL" else op.options.initSubgraphIndex
        return _graph_macs(file, at)
    rule = RULES.get(op.name)
    return rule(op) if rule else 0


def _tensor(op: Operator, index: int) -> Tensor:
    tensor = op.inputs[index]
    assert tensor is not None
    return tensor


def _elements(tensor: Tensor) -> int:
    """Elements at a batch of one: an open dimension is 1."""
    return math.prod(max(1, side) for side in tensor.shape)


def _convolution(op: Operator) -> int:
    # (out, height, width, in / groups): each output element is a product with one filter.
    return _elements(op.outputs[0]) * math.prod(_tensor(op, 1).shape[1:])


def _convolution_3d(op: Operator) -> int:
    # (depth, height, width, in, out)
    return _elements(op.outputs[0]) * math.prod(_tensor(op, 1).shape[:4])


def _depthwise(op: Operator) -> int:
    # (1, height, width, out): one plane of the filter for each output channel.
    return _elements(op.outputs[0]) * math.prod(_tensor(op, 1).shape[1:3])


def _transposed(op: Operator) -> int:
    # Every input element is multiplied with the whole filter of its channel: (out, h, w, in).
    kernel = _tensor(op, 1).shape
    return _elements(_tensor(op, 2)) * kernel[0] * kernel[1] * kernel[2]


def _dense(op: Operator) -> int:
    return _elements(op.outputs[0]) * _tensor(op, 1).shape[-1]


def _matrices(op: Operator) -> int:
    shape = _tensor(op, 0).shape
    inner = shape[-2] if op.options is not None and op.options.adjX else shape[-1]
    return _elements(op.outputs[0]) * inner


def _lstm(op: Operator) -> int:
    shape = _tensor(op, 0).shape
    steps = shape[0] if op.options is not None and op.options.timeMajor else shape[1]
    kernels = [t for t in op.inputs[1:9] if t is not None]
    kernels += [op.inputs[16]] if len(op.inputs) > 16 and op.inputs[16] is not None else []
    return steps * sum(k.size for k in kernels)


def _simple_recurrence(op: Operator) -> int:
    shape = _tensor(op, 0).shape
    steps = shape[0] if op.options.timeMajor else shape[1]
    return steps * (_tensor(op, 1).size + _tensor(op, 2).size)


RULES: dict[str, Callable[[Operator], int]] = {
    "CONV_2D": _convolution,
    "CONV_3D": _convolution_3d,
    "DEPTHWISE_CONV_2D": _depthwise,
    "TRANSPOSE_CONV": _transposed,
    "FULLY_CONNECTED": _dense,
    "BATCH_MATMUL": _matrices,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _simple_recurrence,
}


def _rounds(file: File, graph: Graph, op: Operator) -> int:
    """Return how often a counting loop runs: `while (counter < limit) counter += step`.

    The condition's comparisons are joined by "and", so that the smallest of them decides.
    """
    condition = file.graphs[op.options.condSubgraphIndex]
    body = file.graphs[op.options.bodySubgraphIndex]
    found = []
    for compare in condition.operators:
        if compare.name not in ("LESS", "LESS_EQUAL"):
            continue
        counter, limit = (_loop_value(op, condition, _tensor(compare, side)) for side in (0, 1))
        at = _position(condition, _tensor(compare, 0))
        step = None if at is None else _step(op, body, at)
        if counter is None or limit is None or not step:
            continue
        inclusive = compare.name == "LESS_EQUAL"
        found.append(max(0, math.ceil((limit - counter + int(inclusive)) / step)))
    if not found:
        raise UnknownCost("a loop whose number of rounds is not in the file")
    return min(found)


def _position(graph: Graph, tensor: Tensor) -> int | None:
    return next((i for i, t in enumerate(graph.inputs) if t.index == tensor.index), None)


def _loop_value(op: Operator, graph: Graph, tensor: Tensor) -> int | None:
    """Return a scalar at the loop's start: a constant of its graph, or one that is handed in."""
    if tensor.values is not None:
        return int(np.ravel(tensor.values)[0])
    at = _position(graph, tensor)
    given = None if at is None else op.inputs[at]
    if given is None or given.values is None or given.values.size != 1:
        return None
    return int(np.ravel(given.values)[0])


def _step(op: Operator, body: Graph, at: int) -> int | None:
    """Return what the body adds to its input `at` on the way to its output `at`."""
    made = {t.index: o for o in body.operators for t in o.outputs}
    source = made.get(body.outputs[at].index)
    if source is None or source.name != "ADD":
        return None
    values = [_loop_value(op, body, t) for t in source.inputs if t is not None]
    carried = [_position(body, t) == at for t in source.inputs if t is not None]
    return next((v for v, c in zip(values, carried, strict=True) if not c), None)
