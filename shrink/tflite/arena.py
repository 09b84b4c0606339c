"""The tensor arena of a model in TFLite Micro, measured, and its outputs there."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shrink.base import files
from shrink.base.child import ChildRun, NoAnswer, run_child
from shrink.base.errors import ModelError, StageError
from shrink.base.measurement import Measured
from shrink.base.types import Array
from shrink.tflite.arena_32 import CMSIS_NN, REFERENCE, arena_32_bytes
from shrink.tflite.interpreter import dequantize, load, quantize
from shrink.tflite.memory import aligned, planned_bytes, read_plan
from shrink.tflite.model import Subgraph, read, read_file
from shrink.tflite.names import Named, ordered
from shrink.tflite.runtime import (
    MICRO,
    MODULE,
    ArenaAnswer,
    ArenaRequest,
    RunRequest,
)
from shrink.tflite.suitability import wrong_shapes

_TIMEOUT_S = 20.0
_LOOP_LIMIT_S = 3
"""Seconds that a model with loops may run: TFLite Micro ends some never, as a GRU's that gives its
sequence, and others are small."""
_MOST_WORDS = 300
_ALARM = "died by SIGALRM"
ETHOS_U = "ethos-u"
"""The custom operator of files that Vela made."""
# Beside activations, an arena holds kernels' own data and structures per tensor and operator.
_HEADROOM_BYTES = 4 << 20


_NO_ESTIMATE: Measured[int] = Measured(None, "estimated from the arena, which was not measured")


@dataclass(frozen=True)
class ArenaFigure(Measured[int]):
    """The size of a tensor arena.

    Attributes:
        value: bytes of the smallest arena in which TFLite Micro allocates the model, to 16 bytes;
            None where it does not, refuses to run it, or would compute other outputs than LiteRT.
        reason: why there is no value, or that running the model took too long; else empty.
        estimate: bytes of the activations alone, planned from tensor lifetimes: without scratch
            and persistent buffers of the kernels, and so too low. None for no readable file.
        estimate_32: bytes of an arena on 32-bit targets with CMSIS-NN, from what the 64-bit wheel
            takes.
        estimate_32_reference: the same with reference kernels.
        runs: whether TFLite Micro ran the model.
        fails: whether it refuses the model, or computes other outputs than LiteRT; it may only have
            taken too long.
    """

    estimate: int | None = None
    estimate_32: Measured[int] = _NO_ESTIMATE
    estimate_32_reference: Measured[int] = _NO_ESTIMATE
    runs: bool = False
    fails: bool = False

    @property
    def figures(self) -> dict[str, Measured[int]]:
        """All of them by the report's names."""
        return {
            "arena_bytes": self,
            "arena_estimate_bytes": Measured(self.estimate),
            "arena_32_bytes": self.estimate_32,
            "arena_32_reference_bytes": self.estimate_32_reference,
        }


def arena_of(file: Path | bytes, timeout_s: float = _TIMEOUT_S) -> ArenaFigure:
    """Return the tensor arena of a .tflite file, in bytes.

    TFLite Micro runs in a child process, which tries arenas of several sizes. Nothing is raised
    where it cannot run the model, dies, or takes too long.

    Args:
        file: where it is, or its content.
        timeout_s: seconds that TFLite Micro may take.
    """
    if isinstance(file, bytes):
        with tempfile.TemporaryDirectory(prefix="shrink-arena-") as folder:
            path = Path(folder) / "model.tflite"
            files.write_bytes(path, file)
            return arena_of(path, timeout_s)
    try:
        graphs, offsets = _graphs_and_plan(file)
    except ModelError as error:
        return ArenaFigure(None, f"not measured: {error.message}")
    planned = planned_bytes(graphs[0], offsets)
    limit = _LOOP_LIMIT_S if any(one.name == "WHILE" for one in graphs[0].operators) else 0
    room = _with_headroom(planned, file)
    request = ArenaRequest(str(file.resolve()), room, len(graphs[0].inputs), limit)
    run = run_child(MODULE, request, ArenaAnswer, timeout_s=timeout_s)
    answer = run.answer or ArenaAnswer()
    if answer.smallest_bytes is None:
        if offsets and any(operator.name == ETHOS_U for operator in graphs[0].operators):
            why = f"an Ethos-U file runs on its NPU; Vela planned {planned:,} bytes of arena"
            return ArenaFigure(None, f"not measured: {why}", planned)
        refused = run.answer is None and not run.timed_out
        return ArenaFigure(None, _why_nothing(run), planned, runs=answer.runs, fails=refused)
    reason = "" if answer.runs else f"TFLite Micro allocates the model, but {_why_not_run(run)}"
    wrong = wrong_shapes(graphs[0])
    if wrong or not (answer.runs or run.timed_out or run.failure == _ALARM):
        return ArenaFigure(None, wrong or reason, planned, fails=True)
    cmsis_nn, reference = (
        Measured(arena_32_bytes(graphs, answer.head_bytes, answer.tail_bytes, offsets, kernels))
        for kernels in (CMSIS_NN, REFERENCE)
    )
    return ArenaFigure(answer.smallest_bytes, reason, planned, cmsis_nn, reference, answer.runs)


def roomy_arena(path: Path) -> int:
    """Return the size of an arena that is large enough to try a model in, in bytes."""
    graphs, offsets = _graphs_and_plan(path)
    return _with_headroom(planned_bytes(graphs[0], offsets), path)


def _graphs_and_plan(path: Path) -> tuple[tuple[Subgraph, ...], tuple[int, ...]]:
    """Return the subgraphs of a file, and the offsets of its memory plan if it has one."""
    graphs = read_file(path)
    plan = read_plan(path.read_bytes())
    return graphs, () if plan is None else plan.offsets


def _with_headroom(planned: int, path: Path) -> int:
    return 2 * planned + path.stat().st_size + _HEADROOM_BYTES


def _why_nothing(run: ChildRun[ArenaAnswer]) -> str:
    if run.answer is not None:
        return f"not measured: TFLite Micro, trying smaller and smaller arenas, {run.failure}"
    return f"TFLite Micro cannot allocate the model: {failure_of(run)}"


def _why_not_run(run: ChildRun[ArenaAnswer]) -> str:
    if run.timed_out:
        return f"{run.failure} to run it"
    if run.failure == _ALARM:
        return f"took longer than {_LOOP_LIMIT_S} s to run it"
    return f"cannot run it: {failure_of(run)}"


def failure_of(run: ChildRun[object]) -> str:
    """Return TFLite Micro's own words, which it prints before Python's traceback."""
    words = run.output.partition("Traceback")[0]
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return "; ".join(lines[:2])[:_MOST_WORDS] or run.failure or "it printed no reason"


def refused_operator(words: str) -> str | None:
    """Return the operator that TFLite Micro's words say it cannot run, such as SQRT."""
    match = re.search(r"builtin opcode '(\w+)'|Node (\w+) \(number", words)
    return (match[1] or match[2]) if match else None


def replacement_hint(operator: str | None) -> str:
    """Return what to do about an operator that TFLite Micro has no kernel for."""
    instead = " (by relu or swish, say)" if operator == "GELU" else ""
    return f"replace the layer of {operator or 'that operator'}{instead}"


def refusal_hint(content: bytes, words: str) -> str:
    """Return what to do about a file that TFLite Micro refuses in these words."""
    graph, kind = read(content)[0], refused_operator(words)
    if words == wrong_shapes(graph):
        return "shrink quantize converts a Keras model with a batch size of 1"
    written = {graph.tensors[i].dtype for o in graph.operators for i in o.outputs if i >= 0}
    if "builtin opcode" in words or not written & {"FLOAT32", "INT16"}:
        return replacement_hint(kind)
    return (
        "quantize the float model to int8 (shrink quantize --target tflm), for which TFLite Micro "
        "has most kernels"
    )


def _first_written(content: bytes, operator: str | None) -> str | None:
    """Return the name of what the first such operator writes, which names its layer."""
    graph = read(content)[0]
    written = [each.outputs[0] for each in graph.operators if each.name == operator]
    return graph.tensors[written[0]].name if written else None


_RUN_TIMEOUT_S = 120.0
Arrays = list[Array]


def run_in_runtimes(
    content: bytes,
    inputs: Sequence[Array],
    runtimes: Sequence[str],
    *,
    may_lack_micro: bool = False,
    timeout_s: float = _RUN_TIMEOUT_S,
) -> tuple[ChildRun[NoAnswer], dict[str, list[Array]]]:
    """Run a file on some inputs in a child process.

    Args:
        content: the .tflite file, with a batch of 1.
        inputs: an array (n, ...) for each input, as stored.
        runtimes: of `shrink.tflite.runtime`, by name.
        may_lack_micro: whether TFLite Micro is left out where it cannot allocate the file.
        timeout_s: seconds that all of it may take.

    Returns:
        How the child ended, and an array (n, ...) for each output by runtime; none where it failed.
    """
    with tempfile.TemporaryDirectory(prefix="shrink-run-") as folder:
        path, given, made = (Path(folder) / name for name in ("m.tflite", "in.npz", "out.npz"))
        files.write_bytes(path, content)
        np.savez(given, **{f"input_{i}": one for i, one in enumerate(inputs)})  # type: ignore[arg-type]
        # Activations as a greedy plan places them, twice; and kernels' own data.
        room = aligned(roomy_arena(path) + 4 * len(content) + _HEADROOM_BYTES)
        request = RunRequest(str(path), room, str(given), str(made), [*runtimes], may_lack_micro)
        run = run_child(MODULE, request, NoAnswer, timeout_s=timeout_s)
        outputs: dict[str, list[Array]] = {}
        if run.failure is None and made.is_file():
            with np.load(made) as archive:
                for key in archive.files:
                    outputs.setdefault(key.partition("/")[0], []).append(archive[key])
    return run, outputs


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
    stored = [quantize(x, detail) for x, detail in details]
    run, found = run_in_runtimes(content, stored, [MICRO], timeout_s=timeout_s)
    if MICRO not in found:
        why = failure_of(run)
        raise StageError(
            f"TFLite Micro cannot run the artifact: {why}",
            subject=_first_written(content, refused_operator(why)),
            hint=f"{refusal_hint(content, why)}, or run it in LiteRT only (quantize with target: "
            "litert)",
        )
    # TFLite Micro gives them in the file's order, which need not be the model's.
    stacked = [found[MICRO][position] for position in runner.output_positions]
    arrays = [one[:, 0] if one.shape[1:2] == (1,) else one for one in stacked]
    return [dequantize(a, d) for a, d in zip(arrays, runner.output_details, strict=True)]
