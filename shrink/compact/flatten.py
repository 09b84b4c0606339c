"""RESHAPEs before dense layers, left out.

FULLY_CONNECTED reads its input as values one behind the other, whatever its shape, in LiteRT and in
all kernels of TFLite Micro. Without the RESHAPE, its structures and the tensor that it writes take
nothing of the arena.
"""

from __future__ import annotations

import dataclasses

from shrink.compact.graph import Graph, Operator, mean_the_same
from shrink.compact.views import RESHAPES


def without_flattening(graph: Graph) -> Graph:
    """Return the graph whose dense layers read what was flattened for them.

    What flattened it stays, for `swept` to leave out where nothing else reads it.
    """
    sources: dict[int, int] = {}
    operators = []
    for operator in graph.operators:
        changed = operator
        if _reads_a_row(graph, operator) and operator.inputs[0] in sources:
            inputs = (sources[operator.inputs[0]], *operator.inputs[1:])
            changed = dataclasses.replace(operator, inputs=inputs)
        operators.append(changed)
        if operator.code.builtin in RESHAPES and _keeps_values(graph, operator):
            sources[operator.outputs[0]] = operator.inputs[0]
    return graph.with_operators(operators)


def _reads_a_row(graph: Graph, operator: Operator) -> bool:
    """Whether an operator is a dense layer of one example, whose output has no shape of its input.

    `keepNumDims` would give the output as many dimensions as the input has.
    """
    if operator.name != "FULLY_CONNECTED" or operator.options is None:
        return False
    shape = graph.tensors[operator.outputs[0]].shape
    return len(shape) == 2 and shape[0] == 1 and not operator.options.keepNumDims


def _keeps_values(graph: Graph, operator: Operator) -> bool:
    """Whether a number stands for the same value in an operator's input and in its output."""
    source, output = (graph.tensors[index] for index in (operator.inputs[0], operator.outputs[0]))
    return graph.is_activation(operator.inputs[0]) and mean_the_same(source, output)
