"""LiteRT and TFLite Micro in a child process, which a .tflite file may bring down.

Run by `shrink.base.child.run_child`, with a type of request for each task. TFLite Micro prints
from C++. What it prints while too small arenas are tried is thrown away; what it prints of the
model itself goes to the parent. `shrink.tflite.interpreter` runs LiteRT in this process.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import os
import re
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shrink.base.child import Channel, NoAnswer, die_with_parent, run_child, serve
from shrink.base.errors import ModelError
from shrink.base.host import host_peak_bytes
from shrink.base.types import Array

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter

Inputs = Literal["examples", "random", "zeros"]

MODULE = "shrink.tflite.runtime"
MICRO, XNNPACK = "TFLite Micro", "LiteRT XNNPACK"
LITERT = {
    "LiteRT reference": "BUILTIN_REF",
    "LiteRT built-in": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    XNNPACK: "AUTO",
}
"""The kernels of LiteRT by name, each with its operator resolver."""
STEP_BYTES = 16
_MEMORY_INVOKES = 3
_RANDOM_ROWS = 8
_WARM_UP_S, _WARM_UP_INVOKES = 0.2, 10
LEAST_S, _MOST_S, _LEAST_INVOKES = 0.3, 2.0, 50
_IN_USE = re.compile(rb"Arena allocation (head|tail) (\d+) bytes")
_ROOM_BYTES = 4 << 30
"""Address space beside what the file and its tensors take: libraries and their threads."""
_READING = 20
"""Address space for objects and copies of a file that is read, as a multiple of its size."""


@dataclass(frozen=True)
class ArenaRequest:
    """The model whose arena to measure.

    Attributes:
        path: the .tflite file.
        arena: bytes of one that is large enough.
        inputs: how many the model has.
        run_limit_s: whole seconds that running it may take, after which SIGALRM ends this process;
            0 for no limit.
    """

    path: str
    arena: int
    inputs: int
    run_limit_s: int


@dataclass(frozen=True)
class ArenaAnswer:
    """How far TFLite Micro came with a model that it allocates.

    Attributes:
        smallest_bytes: of the arenas in which it does; None where it died on the way there.
        head_bytes, tail_bytes: what of an arena it uses for activations, and for good.
        runs: whether it ran the model.
    """

    smallest_bytes: int | None = None
    head_bytes: int = 0
    tail_bytes: int = 0
    runs: bool = False


def measure_arena(request: ArenaRequest, parent: Channel) -> ArenaAnswer:
    """Return the smallest arena for a model, once it ran; the parent hears each step at once."""
    import numpy as np
    from tflite_micro import runtime

    content = Path(request.path).read_bytes()
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=request.arena)
    parent.answer(asdict(ArenaAnswer()))

    def allocate(size: int) -> None:
        runtime.Interpreter.from_bytes(content, arena_size=size)

    head, tail = in_use(interpreter)
    del interpreter
    with silence():
        smallest = smallest_arena(lambda size: survives(allocate, size), request.arena, head + tail)
    parent.answer(asdict(ArenaAnswer(smallest, head, tail)))
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=smallest)
    for index in range(request.inputs):
        detail = interpreter.get_input_details(index)
        interpreter.set_input(np.ones(detail["shape"], detail["dtype"]), index)
    signal.alarm(request.run_limit_s)
    interpreter.invoke()
    signal.alarm(0)
    return ArenaAnswer(smallest, head, tail, runs=True)


def survives(attempt: Callable[[int], object], size: int) -> bool:
    """Whether an attempt in a fork of its own neither raises nor dies.

    Where an arena is too small for the persistent buffers of some kernels, an LSTM's for one,
    TFLite Micro reads a null pointer in place of saying so. A fork that hangs ends with this
    process, which its own parent kills after a while.
    """
    parent, child = os.getpid(), os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            die_with_parent(parent)  # what this process asked of the kernel forks do not inherit
            attempt(size)
            code = 0
        os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def in_use(interpreter: object) -> tuple[int, int]:
    """Return the bytes of its arena that an interpreter uses for activations, and for good.

    An allocation needs as many, and for many small tensors more: the planner's own memory.
    """
    with tempfile.TemporaryFile() as printed, silence(printed.fileno()):
        interpreter.print_allocations()  # type: ignore[attr-defined]
        printed.seek(0)
        sizes = dict(_IN_USE.findall(printed.read()))
    return int(sizes[b"head"]), int(sizes[b"tail"])


def smallest_arena(fits: Callable[[int], bool], enough: int, near: int = 0) -> int:
    """Return the smallest multiple of 16 bytes that fits, by bisection.

    Args:
        fits: whether an arena of so many bytes is large enough; larger ones then are, too.
        enough: a size that fits.
        near: a size close to the result, which only saves attempts.
    """
    low, high, stride = 0, -(-enough // STEP_BYTES), 1
    start = -(-near // STEP_BYTES) - 1
    if 0 < start < high and not fits(start * STEP_BYTES):
        low = start
        while low + stride < high and not fits((low + stride) * STEP_BYTES):
            low, stride = low + stride, 2 * stride
        high = min(low + stride, high)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * STEP_BYTES):
            high = middle
        else:
            low = middle
    return high * STEP_BYTES


@contextlib.contextmanager
def silence(into: int | None = None) -> Iterator[None]:
    """Throw away what the process prints, also from C++, or print it to another file."""
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere if into is None else into, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


@dataclass(frozen=True)
class RunRequest:
    """A file to run in one or several runtimes.

    Attributes:
        path: the .tflite file.
        arena: bytes of TFLite Micro's.
        examples: an .npz file of stored (quantized) values, `input_0` (n, ...) and so on.
        outputs: the .npz file to write: `runtime/0` (n, ...) and so on, as stored.
        runtimes: their names.
        may_lack_micro: whether TFLite Micro is left out where it cannot allocate the file.
    """

    path: str
    arena: int
    examples: str
    outputs: str
    runtimes: list[str]
    may_lack_micro: bool = False


def run_examples(request: RunRequest, _: Channel) -> None:
    """Run every example in every runtime, and write the outputs."""
    import numpy as np

    with np.load(request.examples) as archive:
        arrays = [archive[f"input_{index}"] for index in range(len(archive.files))]
    found: dict[str, Array] = {}
    for name in request.runtimes:
        if name == MICRO:
            try:
                outputs = _in_micro(request.path, request.arena, arrays)
            except RuntimeError:
                if not request.may_lack_micro:
                    raise
                continue
        else:
            outputs = _in_litert(request.path, name, arrays)
        found.update({f"{name}/{place}": np.stack(rows) for place, rows in enumerate(outputs)})
    np.savez(request.outputs, **found)  # type: ignore[arg-type]


def _in_micro(path: str, arena: int, arrays: Sequence[Array]) -> list[list[Array]]:
    """Return each output's rows; raises `RuntimeError` where it cannot allocate the file."""
    import numpy as np
    from tflite_micro import runtime

    from shrink.tflite.model import read_file

    interpreter = runtime.Interpreter.from_file(path, arena_size=arena)
    found: list[list[Array]] = [[] for _ in read_file(Path(path))[0].outputs]
    for row in range(len(arrays[0])):
        interpreter.reset()  # else the states of LSTMs would last from one example to the next
        for index, array in enumerate(arrays):
            interpreter.set_input(array[row : row + 1], index)
        interpreter.invoke()
        for index, rows in enumerate(found):
            rows.append(np.array(interpreter.get_output(index)))
    return found


def _in_litert(path: str, name: str, arrays: Sequence[Array]) -> list[list[Array]]:
    from shrink.tflite.interpreter import allocated

    interpreter = allocated(path, LITERT[name])
    places = [detail["index"] for detail in interpreter.get_output_details()]
    found: list[list[Array]] = [[] for _ in places]
    for row in range(len(arrays[0])):
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array[row : row + 1])
        interpreter.invoke()
        for rows, index in zip(found, places, strict=True):
            rows.append(interpreter.get_tensor(index).copy())
    return found


@dataclass(frozen=True)
class DelegateRequest:
    """The .tflite file to prepare in LiteRT with its default delegate, XNNPACK."""

    path: str


@dataclass(frozen=True)
class DelegateAnswer:
    """Numbers of the operators that LiteRT's delegate takes, and LiteRT's version."""

    taken: list[int]
    version: str


def delegated(request: DelegateRequest, _: Channel) -> DelegateAnswer:
    """Return the operators between the inputs and outputs of delegated parts.

    LiteRT lists the file's operators in order, and behind them an entry for each part.
    """
    from shrink.tflite.interpreter import WITH_XNNPACK, allocated

    interpreter = allocated(request.path, WITH_XNNPACK)
    executed = interpreter._get_ops_details()
    own = [one for one in executed if one["op_name"] != "DELEGATE"]
    writers = {int(t): number for number, one in enumerate(own) for t in one["outputs"]}
    found: set[int] = set()
    for part in (one for one in executed if one["op_name"] == "DELEGATE"):
        outside = {int(t) for t in part["inputs"]}
        ahead = [int(t) for t in part["outputs"]]
        while ahead:
            tensor = ahead.pop()
            number = writers.get(tensor)
            if number is not None and number not in found and tensor not in outside:
                found.add(number)
                ahead += [int(t) for t in own[number]["inputs"]]
    return DelegateAnswer(sorted(found), importlib.metadata.version("ai-edge-litert"))


@dataclass(frozen=True)
class VelaRequest:
    """A file to compile with Vela, Arm's compiler for the Ethos-U NPUs.

    Attributes:
        path: the .tflite file.
        folder: to write the compiled file, and the table of its figures, into.
        accelerator: by Vela's name.
    """

    path: str
    folder: str
    accelerator: str


def compile_with_vela(request: VelaRequest, _: Channel) -> None:
    """Compile; the parent reads what Vela prints, and Vela's exit code is the child's."""
    from ethosu.vela import vela

    words = ["--accelerator-config", request.accelerator, "--output-dir", request.folder]
    code = vela.main([request.path, *words, "--show-cpu-operations"])
    if code:
        raise SystemExit(code)


@dataclass(frozen=True)
class InferenceRequest:
    """The artifact to run in LiteRT.

    Attributes:
        path: the .tflite file.
        baseline: another one, of one operator, which runs first and whose memory is not counted.
        threads: of the interpreter.
        examples: an .npz file with float32 arrays `input_0` (n, ...) and so on to time it with;
            empty for random numbers.
        least_s: seconds to time it for, at least.
    """

    path: str
    baseline: str
    threads: int
    examples: str
    least_s: float


@dataclass(frozen=True)
class InferenceAnswer:
    """What running a file takes.

    Attributes:
        memory_bytes: by how much it raised the process's most resident memory.
        times_ms: of each invocation.
        inputs: what the inputs were.
    """

    memory_bytes: int = 0
    times_ms: Sequence[float] = ()
    inputs: Inputs | None = None


def measure_inference(request: InferenceRequest, _: Channel) -> InferenceAnswer:
    """Measure the memory of an artifact and time it."""
    prepare(request.baseline, 1).invoke()
    before = host_peak_bytes()
    interpreter = prepare(request.path, request.threads)
    for _time in range(_MEMORY_INVOKES):
        interpreter.invoke()
    added = host_peak_bytes() - before
    inputs, rows = _rows(interpreter, request.examples)
    return InferenceAnswer(added, time_invokes(interpreter, rows, request.least_s), inputs)


def prepare(path: str, threads: int) -> Interpreter:
    """Return an interpreter whose inputs hold zeros."""
    import numpy as np

    from shrink.tflite.interpreter import allocated

    interpreter = allocated(path, threads=threads)
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
    return interpreter


def _rows(interpreter: Interpreter, examples: str) -> tuple[Inputs, list[list[Array]]]:
    """Return what the inputs are, and the inputs of some invocations, as stored."""
    import numpy as np

    from shrink.tflite.interpreter import described, quantize, random_values

    details = interpreter.get_input_details()
    if examples:
        with np.load(examples) as archive:
            # A file with a batch of its own gets copies of the example.
            stored = [
                [np.resize(row, one.shape) for row in quantize(archive[f"input_{place}"], one)]
                for place, one in enumerate(described(details, {}))
            ]
        return "examples", [list(row) for row in zip(*stored, strict=True)]
    rng = np.random.default_rng(0)
    rows = [
        [random_values(rng, one["shape"], one["dtype"]) for one in details]
        for _ in range(_RANDOM_ROWS)
    ]
    try:
        _set(interpreter, rows[0])
        interpreter.invoke()
    except (RuntimeError, ValueError):  # such as an index beyond a table
        return "zeros", [[np.zeros(d["shape"], d["dtype"]) for d in details]]
    return "random", rows


def _set(interpreter: Interpreter, row: Sequence[Array]) -> None:
    for detail, array in zip(interpreter.get_input_details(), row, strict=True):
        interpreter.set_tensor(detail["index"], array)
    # Examples are independent: a recurrent layer's state starts anew.
    interpreter.reset_all_variables()


def time_invokes(
    interpreter: Interpreter, rows: Sequence[Sequence[Array]], least_s: float = LEAST_S
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


@dataclass(frozen=True)
class GuardRequest:
    """The .tflite file to check.

    Attributes:
        path: where it is.
        must_be_float: whether it must not be quantized.
        in_litert: whether LiteRT has to run it; if not, its structure alone is checked.
        as_it_is: whether it has to do so without `litert_twin`.
    """

    path: str
    must_be_float: bool = False
    in_litert: bool = True
    as_it_is: bool = False


_GUARD_TIMEOUT_S = 120.0
_AGAIN = "convert the model again, or give the Keras model that it was made from"


def guard_artifact(
    path: Path,
    timeout_s: float = _GUARD_TIMEOUT_S,
    child: str = MODULE,
    to_be_quantized: bool = False,
    in_litert: bool = True,
) -> None:
    """Check a .tflite file's structure and run it once on zeros, in a child with limited memory.

    Args:
        path: of the artifact.
        timeout_s: seconds that the child may take.
        child: the module that it runs.
        to_be_quantized: whether it must be a float model.
        in_litert: whether LiteRT is to run it; if not, its structure alone is checked.

    Raises:
        ModelError: its structure is corrupt, it asks for more memory than there is, or running it
            ends the child: by a signal, or by taking too long. Or it was to be quantized, and is.
    """
    request = GuardRequest(str(path.resolve()), to_be_quantized, in_litert)
    run = run_child(child, request, NoAnswer, timeout_s=timeout_s)
    if run.failure is None:
        return
    if run.error is not None:
        raise run.error
    raise ModelError(
        f"refused: a process that runs it once on zeros {run.failure}", subject=path, hint=_AGAIN
    )


def guard(request: GuardRequest, _: Channel) -> None:
    """Check a file's structure, and run it once if it is one for LiteRT.

    What LiteRT and its kernels do with a file that passes the check is not caught here: a signal
    ends this process, and the parent says so.

    Raises:
        ModelError: it is refused.
    """
    path = Path(request.path)
    most = resource.getrlimit(resource.RLIMIT_AS)[1]

    def limit(room: int) -> None:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        in_use = pages * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (in_use + _ROOM_BYTES + room, most))

    try:
        limit(_READING * path.stat().st_size)
        needed = check_artifact(path)
        if request.must_be_float:
            _check_float(path)
        if request.in_litert:
            limit(4 * needed)
            _run_on_zeros(path, request.as_it_is)
    except (ModelError, MemoryError) as error:
        if isinstance(error, MemoryError):
            error = ModelError("refused: it takes more memory than its bytes and tensors")
        error.subject = error.subject or str(path)
        raise error


def check_artifact(path: Path) -> int:
    """Return the bytes of file and arena of an artifact whose structure is sound.

    Raises:
        ModelError: it is corrupt, a constant is not as long as its shape says, its memory plan is
            wrong, or its activations need more memory than the machine has.
    """
    from shrink.tflite.memory import planned_bytes, read_plan
    from shrink.tflite.model import corrupt, read_file

    arena, graphs = 0, read_file(path)
    for graph in graphs:
        if any(index < 0 for index in (*graph.inputs, *graph.outputs)):
            raise corrupt("an input or output is left out")
        for tensor in graph.tensors:
            stored, needed = tensor.data.size, tensor.size_bytes
            flexible = tensor.sparse or tensor.dtype in ("STRING", "RESOURCE", "VARIANT")
            if tensor.constant and not flexible and stored != needed:
                raise corrupt(f"{tensor.name[:80]} needs {needed} bytes, {stored} are there")
        arena += planned_bytes(graph)
    plan = read_plan(path.read_bytes())
    arena += plan.size_bytes if plan is not None else 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if arena > memory:
        raise ModelError(
            f"refused: its tensors take {arena:,} bytes, and this machine has {memory:,}",
            hint="convert the model with smaller inputs",
        )
    return arena + path.stat().st_size


def _check_float(path: Path) -> None:
    from shrink.tflite.model import normalized
    from shrink.tflite.weights import check_float

    check_float(normalized(path.read_bytes()), path)


def _run_on_zeros(path: Path, as_it_is: bool) -> None:
    import numpy as np

    from shrink.tflite.interpreter import Session
    from shrink.tflite.litert_twin import litert_twin

    content = path.read_bytes()
    session = Session(content if as_it_is else litert_twin(content))
    session.run([np.zeros((1, *one.shape[1:]), np.float32) for one in session.inputs])


def main() -> None:
    """Answer the parent, and exit."""
    serve(
        {
            ArenaRequest: measure_arena,
            RunRequest: run_examples,
            DelegateRequest: delegated,
            VelaRequest: compile_with_vela,
            InferenceRequest: measure_inference,
            GuardRequest: guard,
        }
    )


if __name__ == "__main__":
    main()
