"""The tensor arena that a model needs on a microcontroller."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from shrink.base.child import ChildRun, run_child
from shrink.base.errors import ModelError
from shrink.tflite.arena_child import ALLOCATED, RUNS, SMALLEST
from shrink.tflite.planner import planned_bytes
from shrink.tflite.structure import Subgraph, read_file

_TIMEOUT_S = 20.0
_SMALLEST = re.compile(rf"^{SMALLEST}(\d+)$", re.MULTILINE)
_MARK = re.compile(r"^shrink-.*$", re.MULTILINE)
_MOST_WORDS = 300
# Beside activations, an arena holds kernels' own data and structures per tensor and operator.
_HEADROOM_BYTES = 4 << 20


@dataclass(frozen=True)
class ArenaFigure:
    """The size of a tensor arena.

    Attributes:
        value: bytes of the smallest arena in which TFLite Micro allocates the model, to 16 bytes;
            None where it does not.
        estimate: bytes of the activations alone, planned from tensor lifetimes: without scratch
            and persistent buffers of the kernels, and so too low. None for no readable file.
        note: why there is no value, or what happened after the allocation; else empty.
        runs: whether TFLite Micro ran the model.
    """

    value: int | None
    estimate: int | None
    note: str
    runs: bool


def arena_bytes(path: Path, timeout_s: float = _TIMEOUT_S) -> ArenaFigure:
    """Return the tensor arena of a .tflite file, in bytes.

    TFLite Micro runs in a child process, which tries arenas of several sizes. Nothing is raised
    where it cannot run the model, dies, or takes too long.

    Args:
        path: the artifact.
        timeout_s: seconds that TFLite Micro may take.
    """
    try:
        graph = read_file(path)[0]
    except ModelError as error:
        return ArenaFigure(None, None, f"not measured: {error.message}", runs=False)
    planned = planned_bytes(graph)
    run = _run_tflite_micro(path, graph, planned, timeout_s)
    found = _SMALLEST.search(run.output)
    runs = RUNS in run.output
    if found is None:
        return ArenaFigure(None, planned, _why_nothing(run), runs=runs)
    note = "" if runs else f"TFLite Micro allocates the model, but {_why_not_run(run)}"
    return ArenaFigure(int(found.group(1)), planned, note, runs=runs)


def _run_tflite_micro(path: Path, graph: Subgraph, planned: int, timeout_s: float) -> ChildRun:
    arena = _with_headroom(planned, path)
    arguments = (str(path.resolve()), str(arena), str(len(graph.inputs)))
    return run_child("shrink.tflite.arena_child", *arguments, timeout_s=timeout_s)


def roomy_arena_bytes(path: Path) -> int:
    """Return the size of an arena that is large enough to try a model in, in bytes."""
    return _with_headroom(planned_bytes(read_file(path)[0]), path)


def _with_headroom(planned: int, path: Path) -> int:
    return 2 * planned + path.stat().st_size + _HEADROOM_BYTES


def _why_nothing(run: ChildRun) -> str:
    if ALLOCATED in run.output:
        return f"not measured: TFLite Micro, trying smaller and smaller arenas, {run.failure}"
    return f"TFLite Micro cannot allocate the model: {failure_of(run)}"


def _why_not_run(run: ChildRun) -> str:
    return f"{run.failure} to run it" if run.timed_out else f"cannot run it: {failure_of(run)}"


def failure_of(run: ChildRun) -> str:
    """Return TFLite Micro's own words, which it prints before Python's traceback."""
    words = _MARK.sub("", run.output).partition("Traceback")[0]
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return "; ".join(lines[:2])[:_MOST_WORDS] or run.failure or "it printed no reason"
