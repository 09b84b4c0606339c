"""LiteRT's arena: what it takes for a file's activations, and the bands that lower it.

LiteRT reads no memory plan. It places tensors whole, the largest first, each as low as it can lie,
and inputs last to the end; a slice takes room beside what it is cut from, and parts beside what
they are put into.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shrink.base import files
from shrink.base.child import Channel, run_child, serve
from shrink.base.errors import StageError
from shrink.compact.banded import in_bands
from shrink.compact.graph import Graph, write_graph
from shrink.compact.search import Candidate
from shrink.compact.stretch import Survey
from shrink.tflite.model import read, read_file
from shrink.tflite.planner import planned_bytes

_MODULE = "shrink.compact.litert"
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class PlacesRequest:
    """The .tflite file whose activations LiteRT is to place."""

    path: str


@dataclass(frozen=True)
class PlacesAnswer:
    """Bytes from the first activation to the end of the last."""

    arena_bytes: int = 0


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
        run = run_child(_MODULE, PlacesRequest(str(path)), PlacesAnswer, timeout_s=_TIMEOUT_S)
    if run.answer is None:
        said = run.output.strip().rpartition("\n")[2][:300]
        raise StageError(
            f"LiteRT, for which a file is compacted, does not allocate it: {run.failure} {said}",
            hint="`shrink inspect` tells what is in it",
        )
    return run.answer.arena_bytes


def measure_places(request: PlacesRequest, _: Channel) -> PlacesAnswer:
    """Return how far apart the activations lie, in the child process."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    graph = read_file(Path(request.path))[0]
    interpreter = Interpreter(
        model_path=request.path,
        num_threads=1,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    used = {*graph.inputs, *graph.outputs}
    for operator in graph.operators:
        used.update(operator.inputs, operator.outputs)
    placed = [i for i in sorted(used - {-1}) if not graph.tensors[i].constant]
    views = [interpreter.tensor(index)() for index in placed]
    starts = [view.__array_interface__["data"][0] for view in views]
    ends = [start + view.nbytes for start, view in zip(starts, views, strict=True)]
    return PlacesAnswer(max(ends, default=0) - min(starts, default=0))


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


if __name__ == "__main__":
    serve({PlacesRequest: measure_places})
