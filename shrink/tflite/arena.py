"""The tensor arena that a model needs on a microcontroller."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shrink.errors import ModelError
from shrink.measure.child import ChildRun, run_child
from shrink.tflite.planner import planned_bytes
from shrink.tflite.structure import Subgraph, read_file

_TIMEOUT_S = 20.0
_TOTAL = re.compile(r"Arena allocation total (\d+) bytes")
# Beside activations, an arena holds kernels' own data and structures per tensor and operator.
_HEADROOM_BYTES = 4 << 20


@dataclass(frozen=True)
class ArenaFigure:
    """The size of a tensor arena.

    Attributes:
        value: bytes, None where it could not be told.
        method: "tflm": TFLite Micro allocated the model and said so; "planned": the activations
            alone, from tensor lifetimes, without the kernels' scratch and persistent buffers.
        note: where the figure comes from, and why not from TFLite Micro.
    """

    value: int | None
    method: Literal["tflm", "planned"]
    note: str


def arena_bytes(path: Path, timeout_s: float = _TIMEOUT_S) -> ArenaFigure:
    """Return the tensor arena of a .tflite file, in bytes.

    TFLite Micro runs in a child process; where it cannot run the model, dies, or takes too long
    to allocate it, the figure is a plan from tensor lifetimes. Nothing is raised for that.

    Args:
        path: the artifact.
        timeout_s: seconds that TFLite Micro may take.
    """
    try:
        graph = read_file(path)[0]
    except ModelError as error:
        return ArenaFigure(None, "planned", f"arena not planned: {error.message}")
    planned = planned_bytes(graph)
    run = _run_tflite_micro(path, graph, planned, timeout_s)
    found = _TOTAL.search(run.output)
    if found and run.failure is None:
        return ArenaFigure(int(found.group(1)), "tflm", "measured by TFLite Micro's allocator")
    if found and run.timed_out:
        note = f"measured by TFLite Micro's allocator, which {run.failure} to run the model"
        return ArenaFigure(int(found.group(1)), "tflm", note)
    note = f"planned from tensor lifetimes, as TFLite Micro cannot run the model: {failure_of(run)}"
    return ArenaFigure(planned, "planned", note)


def _run_tflite_micro(path: Path, graph: Subgraph, planned: int, timeout_s: float) -> ChildRun:
    arena = _with_headroom(planned, path)
    arguments = (str(path.resolve()), str(arena), str(len(graph.inputs)))
    return run_child("shrink.tflite.arena_child", *arguments, timeout_s=timeout_s)


def roomy_arena_bytes(path: Path) -> int:
    """Return the size of an arena that is large enough to try a model in, in bytes."""
    return _with_headroom(planned_bytes(read_file(path)[0]), path)


def _with_headroom(planned: int, path: Path) -> int:
    return 2 * planned + path.stat().st_size + _HEADROOM_BYTES


def failure_of(run: ChildRun) -> str:
    """Return TFLite Micro's own words, which it prints before Python's traceback."""
    words = run.output.partition("Traceback")[0]
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return "; ".join(lines[:2])[:300] or run.failure or "it printed no figure"
