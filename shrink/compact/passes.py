"""Rewrites of a graph that change no byte of its outputs and leave less to compute or to keep.

- `with_static_shapes`: TensorFlow's converter writes a transposed convolution of Keras with SHAPE,
  STRIDED_SLICE and PACK before it, for batches of any size. In a file of known shapes their result
  is known too.
- `without_flattening`: a dense layer reads its input as one row, whatever shape that has.
- `with_folded_pads`: a convolution whose padding is SAME needs no PAD before it. Where a PAD adds
  what SAME would add, it is left out. Where it adds more at the top than SAME would, as converters
  of other frameworks write strided convolutions, a kernel with a row and a column of zeros more is
  one for which SAME adds just that. The padding is the zero point, whose product with any weight
  is 0.
- `without_unread`: leaves out operators that no output depends on, among them those that the
  others left without a reader.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.compact.cost import graph_macs
from shrink.compact.graph import Graph, mean_the_same
from shrink.compact.rows import CONVOLUTIONS, same_padding
from shrink.tflite.model import Operator, Tensor, constant_tensor, values

RESHAPES = {"RESHAPE", "SQUEEZE", "EXPAND_DIMS"}
"""Operators that leave all bytes where they are."""
_SHAPED = {
    "TRANSPOSE_CONV": 0,
    "RESHAPE": 1,
    "BROADCAST_TO": 1,
    "RESIZE_BILINEAR": 1,
    "RESIZE_NEAREST_NEIGHBOR": 1,
}
"""Operators that are given the shape of their output, and by which of their inputs."""
_SHAPE_ARITHMETIC = {
    "SHAPE",
    "ADD",
    "CAST",
    "CONCATENATION",
    "FLOOR_DIV",
    "GATHER",
    "MUL",
    "PACK",
    "RESHAPE",
    "SLICE",
    "STRIDED_SLICE",
    "SUB",
    "SQUEEZE",
}


def without_unread(graph: Graph) -> Graph:
    """Return the graph without operators that no output depends on."""
    needed = set(graph.outputs)
    kept = []
    for operator in reversed(graph.operators):
        if needed.intersection(operator.outputs):
            needed.update(operator.inputs)
            kept.append(operator)
    return graph.with_operators(kept[::-1])


def with_static_shapes(graph: Graph) -> Graph:
    """Return the graph with constants for shapes that follow from those of its tensors alone."""
    writers = {index: operator for operator in graph.operators for index in operator.outputs}
    tensors, operators = list(graph.tensors), []
    for operator in graph.operators:
        place = _SHAPED.get(operator.name, -1)
        changed = operator
        if 0 <= place < len(operator.inputs) and graph.is_activation(operator.inputs[place]):
            given = operator.inputs[place]
            if graph.tensors[given].dtype == "INT32" and _is_static(graph, given, writers):
                shape = graph.tensors[operator.outputs[0]].shape
                shape = shape[1:3] if operator.name.startswith("RESIZE") else shape
                tensors.append(constant_tensor(np.array(shape, np.int32)))
                changed = _reading(operator, place, len(tensors) - 1)
        operators.append(changed)
    return dataclasses.replace(graph, tensors=tuple(tensors), operators=tuple(operators))


def _reading(operator: Operator, place: int, index: int) -> Operator:
    inputs = (*operator.inputs[:place], index, *operator.inputs[place + 1 :])
    return dataclasses.replace(operator, inputs=inputs)


def _is_static(graph: Graph, index: int, writers: Mapping[int, Operator]) -> bool:
    """Return whether a tensor's values follow from the shapes of others and from constants."""
    waiting, seen = [index], set[int]()
    while waiting:
        tensor = waiting.pop()
        if tensor in seen or not graph.is_activation(tensor):
            continue
        seen.add(tensor)
        writer = writers.get(tensor)
        if writer is None or writer.name not in _SHAPE_ARITHMETIC:
            return False
        waiting += () if writer.name == "SHAPE" else writer.inputs
    return True


def without_flattening(graph: Graph) -> Graph:
    """Return the graph whose dense layers read their input in the shape that it had before."""
    sources: dict[int, int] = {}
    operators = []
    for operator in graph.operators:
        changed = operator
        if _reads_a_row(graph, operator) and operator.inputs[0] in sources:
            changed = _reading(operator, 0, sources[operator.inputs[0]])
        operators.append(changed)
        if operator.name in RESHAPES and graph.is_activation(operator.inputs[0]):
            source, output = operator.inputs[0], operator.outputs[0]
            if mean_the_same(graph.tensors[source], graph.tensors[output]):
                sources[output] = source
    return graph.with_operators(operators)


def _reads_a_row(graph: Graph, operator: Operator) -> bool:
    """Whether an operator is a dense layer of one example, whose output has no shape of its input.

    `keepNumDims` would give the output as many dimensions as the input has.
    """
    if operator.name != "FULLY_CONNECTED" or operator.options is None:
        return False
    shape = graph.tensors[operator.outputs[0]].shape
    return len(shape) == 2 and shape[0] == 1 and not operator.options.keepNumDims


_MOST_ROWS_MORE = 2
"""By which a kernel may grow: converters pad strided convolutions by one."""


def with_folded_pads(graph: Graph, max_macs: int) -> Graph:
    """Return the graph without the PADs that its convolutions can do themselves.

    Args:
        graph: to rewrite.
        max_macs: multiply-accumulates that grown kernels may add, in all.
    """
    for pad in graph.operators:
        folded = _folded(graph, pad, max_macs)
        if folded is not None:
            max_macs -= graph_macs(folded) - graph_macs(graph)
            graph = folded
    return graph


def _folded(graph: Graph, pad: Operator, max_macs: int) -> Graph | None:
    if pad.name != "PAD" or pad.outputs[0] in graph.outputs or len(pad.inputs) > 2:
        return None
    source = graph.tensors[pad.inputs[0]]
    same = mean_the_same(source, graph.tensors[pad.outputs[0]])
    if not same or len(source.shape) != 4 or not graph.tensors[pad.inputs[1]].constant:
        return None
    readers = [o for o in graph.operators if pad.outputs[0] in o.inputs]
    paddings = graph.values(pad.inputs[1]).reshape(-1, 2).tolist()
    if not readers or len(paddings) != 4 or any(paddings[0] + paddings[3]):
        return None
    found, changed = graph, {}
    for reader in readers:
        grown = _grown(found, reader, pad.inputs[0], paddings[1:3])
        if grown is None:
            return None
        found, changed[reader] = grown
    found = found.with_operators([changed.get(o, o) for o in found.operators if o is not pad])
    return found if graph_macs(found) - graph_macs(graph) <= max_macs else None


def _grown(
    graph: Graph, reader: Operator, source: int, paddings: Sequence[Sequence[int]]
) -> tuple[Graph, Operator] | None:
    """Return an operator that reads what is padded, and the graph with its kernel."""
    options = reader.options
    by_window = reader.name in CONVOLUTIONS and options is not None
    if not by_window or options.padding != schema.Padding.VALID:
        return None
    kernel, output = graph.tensors[reader.inputs[1]], graph.tensors[reader.outputs[0]].shape
    dilated = max(options.dilationHFactor, options.dilationWFactor) > 1
    if len(kernel.shape) != 4 or not kernel.constant or dilated:
        return None
    strides = (options.strideH, options.strideW)
    more = [
        _zeros_of(graph.tensors[source].shape[axis], kernel.shape[axis], stride, pair, output[axis])
        for axis, stride, pair in zip((1, 2), strides, paddings, strict=True)
    ]
    if any(pair is None for pair in more):
        return None
    options = copy.copy(options)
    options.padding = schema.Padding.SAME
    inputs = [source, *reader.inputs[1:]]
    if any(sum(pair) for pair in more if pair):
        grown = _with_zeros(kernel, [pair or (0, 0) for pair in more])
        if grown is None:
            return None
        inputs[1] = len(graph.tensors)
        graph = dataclasses.replace(graph, tensors=(*graph.tensors, grown))
    return graph, dataclasses.replace(reader, inputs=tuple(inputs), options=options)


def _with_zeros(kernel: Tensor, more: Sequence[tuple[int, int]]) -> Tensor | None:
    """Return a kernel with rows and columns of zeros more; None where its zero is not known."""
    if kernel.dtype not in ("INT8", "UINT8") or not kernel.zero_points:
        return None
    stored = values(kernel)
    assert stored is not None, "integers are known"
    edges = ((0, 0), *more, (0, 0))
    data = np.pad(stored.reshape(kernel.shape), edges, constant_values=kernel.zero_points[0])
    added = constant_tensor(data)
    return dataclasses.replace(kernel, shape=data.shape, data=added.data, buffer=added.buffer)


def _zeros_of(
    size: int, kernel: int, stride: int, padding: Sequence[int], outputs: int
) -> tuple[int, int] | None:
    """Return zeros before and behind a kernel with which SAME pads as wanted; None for none.

    Args:
        size: of the input, without padding.
        kernel: rows of the kernel.
        stride: in rows.
        padding: rows before and behind that were added.
        outputs: rows of the output.
    """
    for more in range(_MOST_ROWS_MORE + 1):
        above, count = same_padding(size, kernel + more, stride)
        before = above - padding[0]
        if count == outputs and 0 <= before <= more:
            return before, more - before
    return None
