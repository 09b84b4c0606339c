"""LiteRT's arena: what it takes for a file's activations, and the bands that lower it.

LiteRT reads no memory plan. It places tensors whole, the largest first, each as low as it can lie,
and inputs last to the end; a slice takes room beside what it is cut from, and parts beside what
they are put into.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shrink.base import files
from shrink.base.child import run_child
from shrink.base.errors import StageError
from shrink.compact.banded import in_bands
from shrink.compact.graph import Graph, write_graph
from shrink.compact.search import Candidate
from shrink.compact.stretch import Survey
from shrink.tflite.model import read
from shrink.tflite.planner import planned_bytes
from shrink.tflite.runtime import MODULE, PlacesAnswer, PlacesRequest

_TIMEOUT_S = 120.0


def arena_bytes(content: bytes) -> int:
    """Return the bytes of LiteRT's arena that hold a file's activations.

    They are read off the addresses that LiteRT gives them, with its reference kernels: work memory
    of kernels and what delegates such as XNNPACK copy is not among them.

    Args:
        content: the .tflite file.

    Raises:
        StageError: LiteRT does not allocate it.
    """
    with tempfile.TemporaryDirectory(prefix="shrink-litert-") as folder:
        path = Path(folder) / "model.tflite"
        files.write_bytes(path, content)
        run = run_child(MODULE, PlacesRequest(str(path)), PlacesAnswer, timeout_s=_TIMEOUT_S)
    if run.answer is None:
        said = run.output.strip().rpartition("\n")[2][:300]
        raise StageError(
            f"LiteRT, for which a file is compacted, does not allocate it: {run.failure} {said}",
            hint="`shrink inspect` tells what is in it",
        )
    return run.answer.arena_bytes


def lowest(survey: Survey, candidates: Sequence[Candidate]) -> tuple[Candidate, Graph] | None:
    """Return the choice of bands for which LiteRT takes the least; None where there is none.

    Args:
        survey: of the graph.
        candidates: choices of bands; those without any are left out.
    """
    found: tuple[int, Candidate, Graph] | None = None
    for candidate in candidates:
        if candidate.bandings:
            graph = in_bands(survey, candidate.bandings)
            stored = read(write_graph(graph))[0]
            lasting = dataclasses.replace(stored, outputs=(*stored.outputs, *stored.inputs))
            size = planned_bytes(lasting)
            if found is None or size < found[0]:
                found = size, candidate, graph
    return None if found is None else found[1:]
