"""Inference of one artifact in LiteRT, in a child process: its latency, or the peak of its memory.

Some kernels skip zeros (those of LSTMs), so that zeros would make a model look several times as
fast as it is: it is timed on examples, or on random numbers.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, TypeVar

import numpy as np

from shrink.base import files
from shrink.base.child import Channel, die_with_parent, run_child, serve
from shrink.base.errors import ModelError
from shrink.base.foreign import Record
from shrink.base.host import host_peak_bytes
from shrink.base.measured import Measured
from shrink.base.types import Array
from shrink.tflite.litert_twin import not_in_litert

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

_MEMORY_INVOKES = 3
_RANDOM_ROWS = 8
_WARM_UP_S, _WARM_UP_INVOKES = 0.2, 10
_LEAST_S, _MOST_S, _LEAST_INVOKES = 0.3, 2.0, 50

A = TypeVar("A")
Inputs = Literal["examples", "random", "zeros"]
Detail: TypeAlias = "dict[str, Any]"
"""What LiteRT tells of an input."""


@dataclass(frozen=True)
class PeaksRequest:
    """The models whose memory to measure in the child process, each in a fork of its own.

    Attributes:
        paths: .tflite files, in the order in which they run.
        limit_s: whole seconds that each may take.
    """

    paths: Sequence[str]
    limit_s: int


@dataclass(frozen=True)
class PeaksAnswer:
    """The most resident memory of each fork, in bytes."""

    peaks_bytes: Sequence[int] = ()


def measure_peaks(request: PeaksRequest, _: Channel) -> PeaksAnswer:
    """Return the peak of each model's fork, in the child process.

    A fork of a process that has imported LiteRT and run nothing is as fresh as a new one, without
    the third of a second that the imports take.
    """
    importlib.import_module("ai_edge_litert.interpreter")
    return PeaksAnswer([_peak_of_fork(path, request.limit_s) for path in request.paths])


def _peak_of_fork(path: str, limit_s: int) -> int:
    reader, writer = os.pipe()
    parent, fork = os.getpid(), os.fork()
    if fork == 0:
        _run_in_fork(path, limit_s, parent, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
    if code == -signal.SIGALRM:
        raise TimeoutError(f"took longer than {limit_s} s")
    if code < 0:
        os.kill(os.getpid(), -code)  # what killed it is what the parent is to hear
    if code:
        sys.exit(code)
    return int(said)


def _run_in_fork(path: str, limit_s: int, parent: int, writer: int) -> NoReturn:
    code = 1
    try:
        die_with_parent(parent)
        signal.alarm(limit_s)
        interpreter = prepare(path, threads=1)
        for _time in range(_MEMORY_INVOKES):
            interpreter.invoke()
        os.write(writer, b"%d" % host_peak_bytes())
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


@dataclass(frozen=True)
class LatencyRequest:
    """The artifact to time in the child process.

    Attributes:
        path: the .tflite file.
        threads: of the interpreter.
        examples: an .npz file with float32 arrays `input_0` (n, ...) and so on to time it with;
            empty for random numbers.
        least_s: seconds to go on for, at least.
    """

    path: str
    threads: int
    examples: str
    least_s: float


@dataclass(frozen=True)
class LatencyAnswer:
    """The milliseconds of each invocation, and what the inputs were."""

    times_ms: Sequence[float] = ()
    inputs: Inputs | None = None


def measure_latency(request: LatencyRequest, _: Channel) -> LatencyAnswer:
    """Time an artifact, in the child process."""
    interpreter = prepare(request.path, request.threads)
    inputs, rows = _rows(interpreter, request.examples)
    return LatencyAnswer(time_invokes(interpreter, rows, request.least_s), inputs)


def prepare(path: str, threads: int) -> Interpreter:
    """Return an interpreter whose inputs hold zeros."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def allocated(resolver: OpResolverType) -> Interpreter:
        # By path, which LiteRT maps into memory; content would be held twice.
        interpreter = Interpreter(
            model_path=path, num_threads=threads, experimental_op_resolver_type=resolver
        )
        interpreter.allocate_tensors()
        return interpreter

    try:
        interpreter = allocated(OpResolverType.AUTO)
    except RuntimeError:  # the XNNPACK delegate refuses some graphs that the built-in kernels run
        interpreter = allocated(OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
    return interpreter


def random_rows(details: Sequence[Detail], count: int = _RANDOM_ROWS) -> list[list[Array]]:
    """Return seeded random inputs, as stored, one list of arrays (1, ...) each.

    Quantized inputs take any number of their type, real ones lie in [0, 1), and other integers,
    which may be indices, are 0 or 1.

    Args:
        details: of LiteRT's interpreter.
        count: how many.
    """
    rng = np.random.default_rng(0)

    def one(detail: Detail) -> Array:
        shape, dtype = tuple(detail["shape"]), np.dtype(detail["dtype"])
        if dtype.kind == "f":
            return rng.random(shape).astype(dtype)
        if dtype.kind in "iu" and detail["quantization"][0]:
            limits = np.iinfo(detail["dtype"])
            return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return rng.integers(0, 2, shape).astype(dtype)

    return [[one(detail) for detail in details] for _ in range(count)]


def _rows(interpreter: Interpreter, examples: str) -> tuple[Inputs, list[list[Array]]]:
    """Return what the inputs are, and the inputs of some invocations, as stored."""
    details = interpreter.get_input_details()
    if examples:
        with np.load(examples) as archive:
            stored = [_stored(archive[f"input_{i}"], detail) for i, detail in enumerate(details)]
        return "examples", [list(row) for row in zip(*stored, strict=True)]
    rows = random_rows(details)
    try:
        _set(interpreter, rows[0])
        interpreter.invoke()
    except (RuntimeError, ValueError):  # such as an index beyond a table
        return "zeros", [[np.zeros(d["shape"], d["dtype"]) for d in details]]
    return "random", rows


def _stored(array: Array, detail: Detail) -> list[Array]:
    from shrink.tflite.interpreter import TensorDetail, quantize

    scale, zero_point = detail["quantization"]
    described = TensorDetail(
        detail["name"], tuple(detail["shape"]), detail["dtype"], float(scale), int(zero_point)
    )
    rows = quantize(array, described)
    return [rows[i : i + 1].reshape(detail["shape"]) for i in range(len(rows))]


def _set(interpreter: Interpreter, row: Sequence[Array]) -> None:
    for detail, array in zip(interpreter.get_input_details(), row, strict=True):
        interpreter.set_tensor(detail["index"], array)
    # What one example leaves in a recurrent layer is none of the next one's business.
    interpreter.reset_all_variables()


def time_invokes(
    interpreter: Interpreter, rows: Sequence[Sequence[Array]], least_s: float = _LEAST_S
) -> list[float]:
    """Return the milliseconds of each invocation: 50 or more, unless 2 seconds are over before.

    Args:
        interpreter: allocated.
        rows: the inputs of one invocation each, taken in turn; setting them is not timed.
        least_s: seconds to go on for, at least.
    """
    cycle = itertools.cycle(rows)
    start = time.perf_counter()
    for _ in range(_WARM_UP_INVOKES):
        _set(interpreter, next(cycle))
        interpreter.invoke()
        if time.perf_counter() - start > _WARM_UP_S:
            break
    times: list[float] = []
    start = time.perf_counter()
    while True:
        _set(interpreter, next(cycle))
        before = time.perf_counter()
        interpreter.invoke()
        now = time.perf_counter()
        times.append(1000 * (now - before))
        elapsed = now - start
        if elapsed > _MOST_S or (elapsed > least_s and len(times) >= _LEAST_INVOKES):
            return times


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
    with contextlib.suppress(ModelError, OSError):  # what cannot be read, the child tells of
        return not_in_litert(tflite.read_bytes()) or ""
    return ""


def _asked(request: Record, answer: type[A], timeout_s: float) -> tuple[A | None, str]:
    """Return what the child process measured, or None and why there is nothing."""
    run = run_child("shrink.measure.inference", request, answer, timeout_s=timeout_s)
    if run.failure is not None:
        return None, f"LiteRT, running the artifact, {run.failure}"
    if run.answer is None:
        return None, "LiteRT, running the artifact, ended without a figure"
    return run.answer, ""


EXAMPLES = 8
"""As many examples as stand for all: their time differs little, unless they are zeros."""


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
        result, reason = _timed(LatencyRequest(str(tflite.resolve()), threads, path, _LEAST_S))
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


if __name__ == "__main__":
    serve({PeaksRequest: measure_peaks, LatencyRequest: measure_latency})
