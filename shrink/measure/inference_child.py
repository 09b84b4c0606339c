"""Child process: load and run one artifact in LiteRT, and print one figure as JSON.

Some kernels skip zeros (those of LSTMs), so that zeros would make a model look several times as
fast as it is: it is timed on examples, or on random numbers.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from shrink.base.child import die_with_parent
from shrink.base.host import host_peak_bytes

PREFIX = "shrink-figure: "
_MEMORY_INVOKES = 3
_RANDOM_ROWS = 8
_WARM_UP_S, _WARM_UP_INVOKES = 0.2, 10
_LEAST_S, _MOST_S, _LEAST_INVOKES = 0.3, 2.0, 50


def main(parent: str, figure: str, path: str, threads: str, examples: str = "") -> None:
    """Print `{"peak_bytes": int}` for the figure "memory"; for "latency" `times_ms` and `inputs`.

    Args:
        parent: its process id.
        figure: "memory" or "latency".
        path: the .tflite file.
        threads: of the interpreter.
        examples: an .npz file with float32 arrays `input_0` (n, ...) and so on to time it with;
            none for random numbers. `inputs` tells what it was: "examples", "random" or "zeros".
    """
    die_with_parent(int(parent))
    interpreter = prepare(path, int(threads))
    if figure == "memory":
        for _ in range(_MEMORY_INVOKES):
            interpreter.invoke()
        result: dict[str, Any] = {"peak_bytes": host_peak_bytes()}
    else:
        inputs, rows = _rows(interpreter, examples)
        result = {"times_ms": time_invokes(interpreter, rows), "inputs": inputs}
    sys.stdout.write(f"\n{PREFIX}{json.dumps(result)}\n")


def prepare(path: str, threads: int) -> Any:
    """Return an interpreter whose inputs hold zeros."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def allocated(resolver: Any) -> Any:
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


def random_rows(details: Sequence[Any], count: int = _RANDOM_ROWS) -> list[list[Any]]:
    """Return seeded random inputs, as stored, one list of arrays (1, ...) each.

    Quantized inputs take any number of their type, real ones lie in [0, 1), and other integers,
    which may be indices, are 0 or 1.

    Args:
        details: of LiteRT's interpreter.
        count: how many.
    """
    import numpy as np

    rng = np.random.default_rng(0)

    def one(detail: Any) -> Any:
        shape, dtype = tuple(detail["shape"]), np.dtype(detail["dtype"])
        if dtype.kind == "f":
            return rng.random(shape).astype(dtype)
        if dtype.kind in "iu" and detail["quantization"][0]:
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return rng.integers(0, 2, shape).astype(dtype)

    return [[one(detail) for detail in details] for _ in range(count)]


def _rows(interpreter: Any, examples: str) -> tuple[str, list[list[Any]]]:
    """Return what the inputs are, and the inputs of some invocations, as stored."""
    import numpy as np

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


def _stored(array: Any, detail: Any) -> list[Any]:
    from shrink.tflite.session import TensorDetail, quantize

    scale, zero_point = detail["quantization"]
    described = TensorDetail(
        detail["name"], tuple(detail["shape"]), detail["dtype"], float(scale), int(zero_point)
    )
    rows = quantize(array, described)
    return [rows[i : i + 1].reshape(detail["shape"]) for i in range(len(rows))]


def _set(interpreter: Any, row: Sequence[Any]) -> None:
    for detail, array in zip(interpreter.get_input_details(), row, strict=True):
        interpreter.set_tensor(detail["index"], array)
    # What one example leaves in a recurrent layer is none of the next one's business.
    interpreter.reset_all_variables()


def time_invokes(interpreter: Any, rows: Sequence[Sequence[Any]]) -> list[float]:
    """Return the milliseconds of each invocation: 50 or more, unless 2 seconds are over before.

    Args:
        interpreter: allocated.
        rows: the inputs of one invocation each, taken in turn; setting them is not timed.
    """
    turns = itertools.cycle(rows)
    start = time.perf_counter()
    for _ in range(_WARM_UP_INVOKES):
        _set(interpreter, next(turns))
        interpreter.invoke()
        if time.perf_counter() - start > _WARM_UP_S:
            break
    times: list[float] = []
    start = time.perf_counter()
    while True:
        _set(interpreter, next(turns))
        before = time.perf_counter()
        interpreter.invoke()
        now = time.perf_counter()
        times.append(1000 * (now - before))
        elapsed = now - start
        if elapsed > _MOST_S or (elapsed > _LEAST_S and len(times) >= _LEAST_INVOKES):
            return times


if __name__ == "__main__":
    main(*sys.argv[1:])
