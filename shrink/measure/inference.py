"""Latency and memory of one artifact's inference in LiteRT, in a child process.

Some kernels skip zeros (those of LSTMs), so that zeros would make a model look several times as
fast as it is: it is timed on examples, or on random numbers.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base import files
from shrink.base.child import run_child
from shrink.base.errors import ModelError
from shrink.base.foreign import Record
from shrink.base.measured import Measured
from shrink.base.types import Array
from shrink.tflite.litert_twin import not_in_litert
from shrink.tflite.model import new_code, packed
from shrink.tflite.runtime import (
    LEAST_S,
    MODULE,
    Inputs,
    LatencyAnswer,
    LatencyRequest,
    PeaksAnswer,
    PeaksRequest,
)

A = TypeVar("A")

_LIMIT_S = 120
"""Seconds that the inference of one model may take, its start included."""


def peaks(paths: Sequence[Path]) -> tuple[Sequence[int], str]:
    """Return the resident memory of running each model in LiteRT, or none and why there is none.

    Args:
        paths: .tflite files; each runs in a process of its own, one after the other.

    Returns:
        Each one's most resident memory, the process itself included, in bytes.
    """
    if reason := next(filter(None, map(_refused, dict.fromkeys(paths))), ""):
        return (), reason
    request = PeaksRequest([str(path.resolve()) for path in paths], _LIMIT_S)
    answer, reason = _asked(request, PeaksAnswer, _LIMIT_S * (1 + len(paths)))
    return ((), reason) if answer is None else (answer.peaks_bytes, "")


def _refused(tflite: Path) -> str:
    with contextlib.suppress(ModelError, OSError):  # the child reports a file that cannot be read
        return not_in_litert(tflite.read_bytes()) or ""
    return ""


def _asked(request: Record, answer: type[A], timeout_s: float) -> tuple[A | None, str]:
    """Return what the child process measured, or None and why there is nothing."""
    run = run_child(MODULE, request, answer, timeout_s=timeout_s)
    if run.failure is not None:
        return None, f"LiteRT, running the artifact, {run.failure}"
    if run.answer is None:
        return None, "LiteRT, running the artifact, ended without a figure"
    return run.answer, ""


EXAMPLES = 8
"""Enough for a latency: times of examples differ little, unless they are zeros."""


@dataclass(frozen=True)
class Latency:
    """How long one inference takes.

    Attributes:
        p50_ms, p90_ms: median and 90th percentile.
        threads: of the interpreter.
        examples: how many it was timed on; 0 for made-up ones.
        made_up: what the inputs were where they were no examples.
    """

    p50_ms: Measured[float]
    p90_ms: Measured[float]
    threads: int
    examples: int
    made_up: Inputs | None = None


def latency(tflite: Path, threads: int = 1, inputs: Sequence[Array] = ()) -> Latency:
    """Return the median and the 90th percentile of one invocation, in milliseconds.

    LiteRT runs the artifact in a fresh process: a warm-up, then at least 50 invocations and
    0.3 s, but no more than about 2 s, on one example after the other. Nothing is raised when that
    process fails.

    Args:
        tflite: the artifact.
        threads: of the interpreter.
        inputs: examples, a float32 array (n, ...) for each input in the artifact's order; without
            them random numbers, the same every time.
    """
    with tempfile.TemporaryDirectory(prefix="shrink-latency-") as folder:
        path = _save(inputs, Path(folder) / "inputs.npz") if len(inputs) else ""
        result, reason = _timed(LatencyRequest(str(tflite.resolve()), threads, path, LEAST_S))
    examples = len(inputs[0]) if len(inputs) else 0
    if result is None:
        none = Measured[float](None, f"latency not measured: {reason}")
        return Latency(none, none, threads, examples)
    made_up = None if path else result.inputs
    note = f"timed on made-up inputs ({made_up}), as there is no example" if made_up else ""
    p50, p90 = (float(value) for value in np.percentile(result.times_ms, [50, 90]))
    return Latency(Measured(p50, note), Measured(p90, note), threads, examples, made_up)


def _timed(request: LatencyRequest) -> tuple[LatencyAnswer | None, str]:
    if reason := _refused(Path(request.path)):
        return None, reason
    return _asked(request, LatencyAnswer, _LIMIT_S)


def _save(inputs: Sequence[Array], path: Path) -> str:
    stored = {f"input_{i}": np.asarray(array, np.float32) for i, array in enumerate(inputs)}
    with files.replacing(path) as temporary:
        np.savez(temporary, **stored)  # type: ignore[arg-type]
    return str(path)


def one_op_model() -> bytes:
    """Return a .tflite file of one RELU on one float32 number."""
    tensors = [schema.TensorT() for _ in range(2)]
    for tensor, name in zip(tensors, ("input", "output"), strict=True):
        tensor.name, tensor.shape, tensor.type = name, [1, 1], schema.TensorType.FLOAT32
        tensor.buffer = 0
    relu, graph, model = schema.OperatorT(), schema.SubGraphT(), schema.ModelT()
    relu.opcodeIndex, relu.inputs, relu.outputs = 0, [0], [1]
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, [relu], [0], [1]
    model.version, model.buffers, model.subgraphs = 3, [schema.BufferT()], [graph]
    model.operatorCodes = [new_code(schema.BuiltinOperator.RELU, 1)]
    return packed(model)


# Two runs of the same process differ by hundreds of kilobytes.
_LEAST_BYTES = 1 << 20
_NOISE = "inference memory is less than 1 MiB above the runtime's own, too small to measure"


def inference_peak_bytes(tflite: Path, pairs: int = 5) -> Measured[int]:
    """Return the resident memory that loading and running an artifact adds, in bytes.

    LiteRT runs it in a fresh process, against the same process with a model of one operator; the
    figure is the median difference of the two high-water marks. It is None, with the reason, below
    1 MiB, where noise is as large, and when a process fails; nothing is raised for that.

    Args:
        tflite: the artifact.
        pairs: how many differences are taken.
    """
    with tempfile.TemporaryDirectory(prefix="shrink-memory-") as folder:
        baseline = Path(folder) / "one_op.tflite"
        files.write_bytes(baseline, one_op_model())
        held, reason = peaks([tflite, baseline] * pairs)
    if reason:
        return Measured(None, f"inference memory not measured: {reason}")
    differences = [mine - least for mine, least in zip(held[::2], held[1::2], strict=True)]
    median = int(statistics.median(differences))
    if median < _LEAST_BYTES:
        return Measured(None, _NOISE)
    return Measured(median)
