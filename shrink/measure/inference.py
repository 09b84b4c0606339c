"""Latency and memory of one artifact's inference in LiteRT, in a child process.

Some kernels skip zeros (those of LSTMs), so that zeros would make a model look several times as
fast as it is: it is timed on examples, or on random numbers.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from shrink.base import files
from shrink.base.child import run_child
from shrink.base.errors import ModelError
from shrink.base.measurement import Measured
from shrink.base.types import Array
from shrink.tflite.litert_twin import not_in_litert
from shrink.tflite.model import new_code, packed
from shrink.tflite.runtime import LEAST_S, MODULE, InferenceAnswer, InferenceRequest, Inputs

_LIMIT_S = 120
"""Seconds that the process may take, its start included."""
EXAMPLES = 8
"""Enough for a latency: times of examples differ little, unless they are zeros."""
_LEAST_BYTES = 1 << 20
"""Two builds of a runtime differ by hundreds of kilobytes in what they load and when."""


@dataclass(frozen=True)
class Inference:
    """What one inference takes.

    Attributes:
        p50_ms, p90_ms: median and 90th percentile.
        peak_bytes: resident memory that loading and running the artifact adds.
        threads: of the interpreter.
        examples: how many it was timed on; 0 for made-up ones.
        made_up: what the inputs were where they were no examples.
    """

    p50_ms: Measured[float]
    p90_ms: Measured[float]
    peak_bytes: Measured[int]
    threads: int = 1
    examples: int = 0
    made_up: Inputs | None = None


def measure_inference(tflite: Path, threads: int = 1, inputs: Sequence[Array] = ()) -> Inference:
    """Return how long an invocation takes, and the memory that it adds to a process.

    LiteRT runs the artifact in a fresh process, after a model of one operator, above which the
    process's high-water mark is counted; below 1 MiB it says nothing. Times are of at least 50
    invocations and 0.3 s after a warm-up, but of no more than about 2 s, on one example after the
    other. Nothing is raised when that process fails.

    Args:
        tflite: the artifact.
        threads: of the interpreter.
        inputs: examples, a float32 array (n, ...) for each input in the artifact's order; without
            them random numbers, the same every time.
    """
    examples, why = len(inputs[0]) if len(inputs) else 0, ""
    with contextlib.suppress(ModelError, OSError):  # the child reports a file that cannot be read
        why = not_in_litert(tflite.read_bytes())
    with tempfile.TemporaryDirectory(prefix="shrink-inference-") as folder:
        baseline, given = Path(folder) / "one_op.tflite", Path(folder) / "inputs.npz"
        files.write_bytes(baseline, one_op_model())
        np.savez(given, **{f"input_{i}": np.asarray(x, np.float32) for i, x in enumerate(inputs)})  # type: ignore[arg-type]
        request = InferenceRequest(
            str(tflite.resolve()), str(baseline), threads, str(given) if examples else "", LEAST_S
        )
        answer = InferenceAnswer()
        if not why:
            run = run_child(MODULE, request, InferenceAnswer, timeout_s=_LIMIT_S)
            answer = run.answer or answer
            if run.failure or not answer.times_ms:
                failed = run.failure or "ended without a figure"
                why = f"LiteRT, running the artifact, {failed}"
    if why:
        untimed = Measured[float](None, f"latency not measured: {why}")
        unknown = Measured[int](None, f"inference memory not measured: {why}")
        return Inference(untimed, untimed, unknown, threads, examples)
    note = (
        "" if examples else f"inputs of the timing: {answer.inputs}, because there are no examples"
    )
    p50, p90 = (Measured(float(v), note) for v in np.percentile(answer.times_ms, [50, 90]))
    memory = Measured[int](answer.memory_bytes)
    if answer.memory_bytes < _LEAST_BYTES:
        memory = Measured(
            None,
            "inference memory is less than 1 MiB above the runtime's own, too small to measure",
        )
    return Inference(p50, p90, memory, threads, examples, None if examples else answer.inputs)


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
