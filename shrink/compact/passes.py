"""Rewrites of a graph that change no byte of its outputs and leave less to compute or to keep.

- `with_static_shapes`: TensorFlow's converter writes a transposed convolution of Keras with SHAPE,
  STRIDED_SLICE and PACK before it, for batches of any size. In a file of known shapes their result
  is known too.
- `with_merged_reshapes`: a dense layer reads its input as one row, whatever shape that has, and of
  RESHAPEs one after the other the last reads what the first reads.
- `with_folded_pads`: a convolution whose padding is SAME needs no PAD before it that adds what SAME
  would add. The padding is the zero point, whose product with any weight is 0.
- `without_unread`: leaves out operators that no output depends on, among them those that the
  passes before it left without a reader.

A new pass is a function from graph to graph, and a line of `PASSES`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.compact.graph import Graph, mean_the_same
from shrink.compact.order import in_best_order
from shrink.compact.rows import CONVOLUTIONS, same_padding
from shrink.tflite.model import Operator, Tensor, constant_tensor

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
        position = _SHAPED.get(operator.name, -1)
        changed = operator
        if 0 <= position < len(operator.inputs) and graph.is_activation(operator.inputs[position]):
            given = operator.inputs[position]
            if graph.tensors[given].dtype == "INT32" and _is_static(graph, given, writers):
                shape = graph.tensors[operator.outputs[0]].shape
                shape = shape[1:3] if operator.name.startswith("RESIZE") else shape
                tensors.append(constant_tensor(np.array(shape, np.int32)))
                changed = _reading(operator, position, len(tensors) - 1)
        operators.append(changed)
    return dataclasses.replace(graph, tensors=tuple(tensors), operators=tuple(operators))


def _reading(operator: Operator, position: int, index: int) -> Operator:
    inputs = (*operator.inputs[:position], index, *operator.inputs[position + 1 :])
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


def with_merged_reshapes(graph: Graph) -> Graph:
    """Return the graph whose operators read past RESHAPEs, wherever the same bytes were before."""
    first: dict[int, int] = {}  # of the tensors that hold the same bytes
    shaped: dict[tuple[int, tuple[int, ...]], int] = {}
    operators = []
    for operator in graph.operators:
        changed = operator
        for position, index in enumerate(operator.inputs):
            if index in first:
                free = operator.name == "RESHAPE" or _reads_a_row(graph, operator)
                same = shaped[first[index], graph.tensors[index].shape]
                found = first[index] if free and position == 0 else same
                changed = changed if found == index else _reading(changed, position, found)
        operators.append(changed)
        if operator.name in RESHAPES and graph.is_activation(operator.inputs[0]):
            source, output = operator.inputs[0], operator.outputs[0]
            if mean_the_same(graph.tensors[source], graph.tensors[output]):
                first[output] = first.setdefault(source, source)
                for index in (source, output):
                    shaped.setdefault((first[source], graph.tensors[index].shape), index)
    return graph.with_operators(operators)


def _reads_a_row(graph: Graph, operator: Operator) -> bool:
    """Whether an operator is a dense layer of one example, whose output has no shape of its input.

    `keepNumDims` would give the output as many dimensions as the input has.
    """
    if operator.name != "FULLY_CONNECTED" or operator.options is None:
        return False
    shape = graph.tensors[operator.outputs[0]].shape
    return len(shape) == 2 and shape[0] == 1 and not operator.options.keepNumDims


def with_folded_pads(graph: Graph) -> Graph:
    """Return the graph without the PADs that its convolutions can do themselves."""
    for pad in graph.operators:
        if pad.name != "PAD" or pad.outputs[0] in graph.outputs or len(pad.inputs) > 2:
            continue
        source = graph.tensors[pad.inputs[0]]
        same = mean_the_same(source, graph.tensors[pad.outputs[0]])
        if not same or len(source.shape) != 4 or not graph.tensors[pad.inputs[1]].constant:
            continue
        paddings = graph.values(pad.inputs[1]).reshape(-1, 2).tolist()
        readers = {o for o in graph.operators if pad.outputs[0] in o.inputs}
        fold = len(paddings) == 4 and not any(paddings[0] + paddings[3])
        if readers and fold and all(_pads(graph, o, source, paddings) for o in readers):
            graph = graph.with_operators(
                [
                    _with_same(o, pad.inputs[0]) if o in readers else o
                    for o in graph.operators
                    if o is not pad
                ]
            )
    return graph


def _pads(
    graph: Graph, reader: Operator, source: Tensor, paddings: Sequence[Sequence[int]]
) -> bool:
    """Whether the padding SAME of a convolution adds what a PAD before it does."""
    options = reader.options
    if reader.name not in CONVOLUTIONS or options is None:
        return False
    kernel, output = graph.tensors[reader.inputs[1]], graph.tensors[reader.outputs[0]].shape
    dilated = max(options.dilationHFactor, options.dilationWFactor) > 1
    if options.padding != schema.Padding.VALID or len(kernel.shape) != 4 or dilated:
        return False
    return all(
        same_padding(source.shape[axis], kernel.shape[axis], stride)
        == (paddings[axis][0], output[axis])
        for axis, stride in ((1, options.strideH), (2, options.strideW))
    )


def _with_same(operator: Operator, source: int) -> Operator:
    options = copy.copy(operator.options)
    options.padding = schema.Padding.SAME
    inputs = (source, *operator.inputs[1:])
    return dataclasses.replace(operator, inputs=inputs, options=options)


class Pass(NamedTuple):
    """A rewrite, and the line that reports it.

    Attributes:
        rewrite: the function.
        note: of what it did, with a place for the number of operators that are changed or gone.
    """

    rewrite: Callable[[Graph], Graph]
    note: str


PASSES = (
    Pass(
        with_static_shapes,
        "computed shapes made constants, so that LiteRT may give their operators to XNNPACK, "
        "which rounds in its own way: {}",
    ),
    Pass(
        with_merged_reshapes,
        "operators that read their input without a RESHAPE before them: {}",
    ),
    Pass(without_unread, "operators left out that no output depends on: {}"),
    Pass(with_folded_pads, "PADs folded into the convolutions that read them: {}"),
    Pass(in_best_order, "operators reordered"),
)
"""In the order in which they run."""


def simplified(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph after all passes, and a line for each that changed it."""
    notes = []
    for one in PASSES:
        before, graph = graph.operators, one.rewrite(graph)
        if graph.operators != before:
            gone = len(before) - len(graph.operators)
            notes.append(one.note.format(gone or len(set(before) - set(graph.operators))))
    return graph, tuple(notes)
