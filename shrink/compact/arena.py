"""Arenas of files that are in memory, as their runtimes measure them."""

from __future__ import annotations

from typing import NamedTuple

from shrink.base.errors import StageError
from shrink.compact.graph import Graph, write_graph
from shrink.compact.plan import Plan
from shrink.tflite.arena import arena_of, refusal_hint

LEAST_GAIN = 0.01
"""Less than this share of an arena, or of a file, is not worth another operator."""


class Version(NamedTuple):
    """A rewritten graph with its plan, and the arena of its file.

    Attributes:
        done: what was done to the graph, a line each.
    """

    graph: Graph
    plan: Plan
    content: bytes
    arena: int
    done: tuple[str, ...] = ()


def allocated_bytes(content: bytes) -> int:
    """Return the bytes of the smallest arena in which TFLite Micro allocates a file.

    Raises:
        StageError: it does not, cannot run the file, or computes other outputs than LiteRT.
    """
    figure = arena_of(content)
    if figure.value is None:
        raise StageError(
            f"compact plans the arena of TFLite Micro, which does not run this file: "
            f"{figure.reason}",
            hint=refusal_hint(content, figure.reason),
        )
    return figure.value


def allocated_as_given(content: bytes, graph: Graph) -> int:
    """Return the arena of a file as it was given, or of its graph written again.

    TFLite Micro does not find the operators of files that hold only the deprecated operator codes,
    as converters wrote them before 2021.

    Raises:
        StageError: TFLite Micro allocates neither.
    """
    try:
        return allocated_bytes(content)
    except StageError:
        again = write_graph(graph)
        if again == content:
            raise
        return allocated_bytes(again)
