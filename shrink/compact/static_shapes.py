"""Shapes that a file computes from its own shapes while it runs, made constants.

TensorFlow's converter writes a transposed convolution of Keras with SHAPE, STRIDED_SLICE and PACK
before it, for batches of any size. In a file of known shapes their result is known too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base.types import Array
from shrink.compact.graph import Graph, Operator, Tensor

_SHAPED = {
    "TRANSPOSE_CONV": 0,
    "RESHAPE": 1,
    "BROADCAST_TO": 1,
    "RESIZE_BILINEAR": 1,
    "RESIZE_NEAREST_NEIGHBOR": 1,
}
"""Operators that are told the shape of their output, and by which of their inputs."""
_ARITHMETIC = {
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


def with_static_shapes(graph: Graph) -> Graph:
    """Return the graph with constants for shapes that follow from those of its tensors alone.

    What computed them stays, for `swept` to leave out where nothing else reads it.
    """
    writers = {index: operator for operator in graph.operators for index in operator.outputs}
    tensors, operators = list(graph.tensors), []
    for operator in graph.operators:
        place = _SHAPED.get(operator.name, -1)
        changed = operator
        if 0 <= place < len(operator.inputs) and graph.is_activation(operator.inputs[place]):
            shape = operator.inputs[place]
            if graph.tensors[shape].type == schema.TensorType.INT32 and _known(
                graph, shape, writers
            ):
                data = _shape(graph, operator)
                tensors.append(Tensor(data.shape, schema.TensorType.INT32, None, data, True))
                inputs = list(operator.inputs)
                inputs[place] = len(tensors) - 1
                changed = dataclasses.replace(operator, inputs=tuple(inputs))
        operators.append(changed)
    return dataclasses.replace(graph, tensors=tuple(tensors), operators=tuple(operators))


def _known(graph: Graph, index: int, writers: Mapping[int, Operator]) -> bool:
    """Return whether a tensor's values follow from the shapes of others and from constants."""
    waiting, seen = [index], set[int]()
    while waiting:
        tensor = waiting.pop()
        if tensor in seen or not graph.is_activation(tensor):
            continue
        seen.add(tensor)
        writer = writers.get(tensor)
        if writer is None or writer.name not in {*_ARITHMETIC, "SHAPE"}:
            return False
        waiting += () if writer.name == "SHAPE" else writer.inputs
    return True


def _shape(graph: Graph, operator: Operator) -> Array:
    shape = graph.tensors[operator.outputs[0]].shape
    whole = not operator.name.startswith("RESIZE")
    return np.array(shape if whole else shape[1:3], "<i4")
