"""Operators whose outputs nothing reads, left out."""

from __future__ import annotations

from shrink.compact.graph import Graph


def swept(graph: Graph) -> Graph:
    """Return the graph without operators that no output depends on.

    Tensors and buffers that nothing names are left out when a graph is written.
    """
    needed = set(graph.outputs)
    kept = []
    for operator in reversed(graph.operators):
        if needed.intersection(operator.outputs):
            needed.update(operator.inputs)
            kept.append(operator)
    return graph.with_operators(kept[::-1])
