"""PADs of foreign files, folded into the convolutions that read them.

A convolution whose padding is SAME needs no PAD before it. Where a PAD adds what SAME would add, it
is left out. Where it adds more at the top than SAME would, as converters of other frameworks write
strided convolutions, a kernel with a row and a column of zeros more is one for which SAME adds
just that. What is padded is the zero point, whose product with any weight is 0.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.cost import graph_macs
from shrink.compact.graph import Graph, Operator
from shrink.compact.rows import CONVOLUTIONS, same_padding

_MOST_ROWS_MORE = 2
_WEIGHT_DTYPES = {schema.TensorType.INT8: np.int8, schema.TensorType.UINT8: np.uint8}


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
    if pad.name != "PAD" or pad.outputs[0] in graph.outputs or not _keeps_values(graph, pad):
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
    operators = [changed.get(o, o) for o in found.operators if o is not pad]
    found = found.with_operators(operators)
    return found if graph_macs(found) - graph_macs(graph) <= max_macs else None


def _keeps_values(graph: Graph, pad: Operator) -> bool:
    source, output = (graph.tensors[index] for index in (pad.inputs[0], pad.outputs[0]))
    if source.stored is None or output.stored is None or not graph.tensors[pad.inputs[1]].constant:
        return False
    one, other = source.stored.quantization, output.stored.quantization
    if one is None or other is None or len(pad.inputs) > 2 or len(source.shape) != 4:
        return False
    same = np.array_equal(one.scale, other.scale)
    return same and np.array_equal(one.zeroPoint, other.zeroPoint)


def _grown(
    graph: Graph, reader: Operator, source: int, paddings: Sequence[Sequence[int]]
) -> tuple[Graph, Operator] | None:
    """Return an operator that reads what is padded, and the graph with its kernel."""
    options = reader.options
    by_window = reader.code.builtin in CONVOLUTIONS and options is not None
    if not by_window or options.padding != schema.Padding.VALID:
        return None
    kernel, output = graph.tensors[reader.inputs[1]], graph.tensors[reader.outputs[0]].shape
    if len(kernel.shape) != 4 or not kernel.constant:
        return None
    strides = (options.strideH, options.strideW)
    dilated = max(options.dilationHFactor, options.dilationWFactor) > 1
    more = [
        _zeros_of(graph.tensors[source].shape[axis], kernel.shape[axis], stride, pair, output[axis])
        for axis, stride, pair in zip((1, 2), strides, paddings, strict=True)
    ]
    if any(pair is None or (dilated and any(pair)) for pair in more) or dilated:
        return None
    options = copy.copy(options)
    options.padding = schema.Padding.SAME
    inputs = [source, *reader.inputs[1:]]
    if any(sum(pair) for pair in more if pair):
        values = _values(graph, reader.inputs[1])
        if values is None:
            return None
        zero = int(kernel.stored.quantization.zeroPoint[0])  # type: ignore[union-attr]
        edges = ((0, 0), *(pair or (0, 0) for pair in more), (0, 0))
        data = np.pad(values, edges, constant_values=zero)
        added = dataclasses.replace(kernel, shape=data.shape, data=data)
        inputs[1] = len(graph.tensors)
        graph = dataclasses.replace(graph, tensors=(*graph.tensors, added))
    return graph, dataclasses.replace(reader, inputs=tuple(inputs), options=options)


def _values(graph: Graph, index: int) -> Array | None:
    kernel = graph.tensors[index]
    dtype = _WEIGHT_DTYPES.get(kernel.type)
    if dtype is None or kernel.stored is None or kernel.stored.quantization is None:
        return None
    points = kernel.stored.quantization.zeroPoint
    if points is None or not len(points):  # what stands for zero is not known
        return None
    stored = graph.model.buffers[kernel.stored.buffer].data
    return np.frombuffer(bytes(stored), dtype).reshape(kernel.shape)


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
