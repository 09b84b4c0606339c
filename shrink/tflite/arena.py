"""TFLite Micro: the tensor arena that a model needs, measured and planned, and its outputs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base import files
from shrink.base.child import ChildRun, run_child
from shrink.base.errors import ModelError, StageError
from shrink.base.types import Array
from shrink.tflite.child import ALLOCATED, MODULE, RUNS, SMALLEST
from shrink.tflite.interpreter import dequantize, load, quantize
from shrink.tflite.names import Named, ordered
from shrink.tflite.structure import Subgraph, Tensor, read_file

ALIGNMENT_BYTES = 16

_BITS = {
    "INT2": 2,
    "INT4": 4,
    "UINT4": 4,
    "INT8": 8,
    "UINT8": 8,
    "BOOL": 8,
    "FLOAT8_E4M3FN": 8,
    "FLOAT8_E5M2": 8,
    "INT16": 16,
    "UINT16": 16,
    "FLOAT16": 16,
    "BFLOAT16": 16,
    "INT64": 64,
    "UINT64": 64,
    "FLOAT64": 64,
    "COMPLEX64": 64,
    "COMPLEX128": 128,
}


@dataclass(frozen=True)
class Lifetime:
    """A block of memory that is needed from operator `first` to operator `last`, both included."""

    size_bytes: int
    first: int
    last: int


def tensor_bytes(tensor: Tensor) -> int:
    """Return the bytes that a tensor's values take, without alignment."""
    return (tensor.elements * _BITS.get(tensor.dtype, 32) + 7) // 8


def lifetimes(graph: Subgraph) -> list[Lifetime]:
    """Return the lifetimes of a subgraph's non-constant tensors.

    Inputs live from the first operator on, outputs to the last one, variables throughout.
    """
    end = max(len(graph.operators) - 1, 0)
    first: dict[int, int] = dict.fromkeys(graph.inputs, 0)
    last: dict[int, int] = dict.fromkeys(graph.inputs, 0)
    for step, operator in enumerate(graph.operators):
        for index in (*operator.inputs, *operator.outputs):
            first.setdefault(index, step)
            last[index] = step
    last.update(dict.fromkeys(graph.outputs, end))
    for index, tensor in enumerate(graph.tensors):
        if tensor.variable:
            first[index], last[index] = 0, end
    return [
        Lifetime(tensor_bytes(graph.tensors[index]), first.get(index, 0), last[index])
        for index in sorted(last)
        if index >= 0 and not graph.tensors[index].constant
    ]


def plan(blocks: Sequence[Lifetime]) -> list[int]:
    """Return an offset for each block, so that no two that live at once overlap.

    Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
    Inference", 2020, algorithm 3): the largest first, each into the lowest gap that holds it.
    """
    offsets = [0] * len(blocks)
    placed: list[int] = []
    for index in sorted(range(len(blocks)), key=lambda i: -blocks[i].size_bytes):
        block = blocks[index]
        offset = 0
        for other in sorted(placed, key=lambda i: offsets[i]):
            if blocks[other].last < block.first or block.last < blocks[other].first:
                continue
            if offset + block.size_bytes <= offsets[other]:
                break
            offset = max(offset, _aligned(offsets[other] + blocks[other].size_bytes))
        offsets[index] = offset
        placed.append(index)
    return offsets


def planned_bytes(graph: Subgraph) -> int:
    """Return the size in bytes of the arena that holds a subgraph's activations."""
    blocks = lifetimes(graph)
    ends = (o + b.size_bytes for o, b in zip(plan(blocks), blocks, strict=True))
    return _aligned(max(ends, default=0))


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


_TIMEOUT_S = 20.0
_LOOP_LIMIT_S = 3
"""Seconds that a model with loops may run: TFLite Micro ends some never, as a GRU's that gives its
sequence, and others are small."""
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
    limit = _LOOP_LIMIT_S if any(one.name == "WHILE" for one in graph.operators) else 0
    arguments = (str(path.resolve()), str(arena), str(len(graph.inputs)), str(limit))
    return run_child(MODULE, "arena", *arguments, timeout_s=timeout_s)


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
    if run.timed_out:
        return f"{run.failure} to run it"
    if run.failure == "died by SIGALRM":
        return f"took longer than {_LOOP_LIMIT_S} s to run it"
    return f"cannot run it: {failure_of(run)}"


def failure_of(run: ChildRun) -> str:
    """Return TFLite Micro's own words, which it prints before Python's traceback."""
    words = _MARK.sub("", run.output).partition("Traceback")[0]
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return "; ".join(lines[:2])[:_MOST_WORDS] or run.failure or "it printed no reason"


_RUN_TIMEOUT_S = 120.0
Arrays = list[Array]


def predict_in_micro(
    content: bytes, inputs: Named | Array, timeout_s: float = _RUN_TIMEOUT_S
) -> Arrays:
    """Return the float32 outputs (n, ...) of an artifact, computed by TFLite Micro's kernels.

    It runs in a child process: what TFLite Micro cannot run may end it.

    Args:
        content: the .tflite file, with a batch of 1.
        inputs: float32 arrays (n, ...) by the name of the artifact's input, or the array of the
            only one; quantized here as LiteRT's are.
        timeout_s: seconds that all examples may take.

    Raises:
        StageError: TFLite Micro cannot run the model, or takes too long.
    """
    runner = load(content)
    details = zip(ordered(inputs, runner.input_names), runner.input_details, strict=True)
    stored = {f"input_{i}": quantize(x, detail) for i, (x, detail) in enumerate(details)}
    with tempfile.TemporaryDirectory(prefix="shrink-micro-") as folder:
        path, examples, outputs = (Path(folder) / n for n in ("m.tflite", "in.npz", "out.npz"))
        files.write_bytes(path, content)
        with files.replacing(examples) as temporary:
            np.savez(temporary, **stored)  # type: ignore[arg-type]
        places = (str(path), str(roomy_arena_bytes(path)), str(examples), str(outputs))
        run = run_child(MODULE, "micro", *places, timeout_s=timeout_s)
        if run.failure is not None or not outputs.is_file():
            raise StageError(
                f"TFLite Micro cannot run the artifact: {failure_of(run)}",
                hint="its int8 kernels are the most: scheme static_wi8_ai8, and without masks and "
                "loops where it is that already; or target: litert, to run it in LiteRT only",
            )
        with np.load(outputs) as archive:
            # TFLite Micro gives them in the file's order, which need not be the model's.
            found = [archive[f"output_{place}"] for place in runner.output_places]
    return [dequantize(a, d) for a, d in zip(found, runner.output_details, strict=True)]
