"""Child process: load and run one artifact in LiteRT, and print one figure as JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from shrink.measure.host import host_peak_bytes
from shrink.run.lifetime import die_with_parent

PREFIX = "shrink-figure: "
_MEMORY_INVOKES = 3
_WARM_UP_S, _WARM_UP_INVOKES = 0.2, 10
_LEAST_S, _MOST_S, _LEAST_INVOKES = 0.3, 2.0, 50


def main(parent: str, figure: str, path: str, threads: str) -> None:
    """Print `{"peak_bytes": int}` for the figure "memory", `{"times_ms": [...]}` for "latency"."""
    die_with_parent(int(parent))
    interpreter = prepare(path, int(threads))
    if figure == "memory":
        for _ in range(_MEMORY_INVOKES):
            interpreter.invoke()
        result: dict[str, Any] = {"peak_bytes": host_peak_bytes()}
    else:
        result = {"times_ms": time_invokes(interpreter)}
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


def time_invokes(interpreter: Any) -> list[float]:
    """Return the milliseconds of each invocation: 50 or more, unless 2 seconds are over before."""
    start = time.perf_counter()
    for _ in range(_WARM_UP_INVOKES):
        interpreter.invoke()
        if time.perf_counter() - start > _WARM_UP_S:
            break
    times: list[float] = []
    start = before = time.perf_counter()
    while True:
        interpreter.invoke()
        now = time.perf_counter()
        times.append(1000 * (now - before))
        before, elapsed = now, now - start
        if elapsed > _MOST_S or (elapsed > _LEAST_S and len(times) >= _LEAST_INVOKES):
            return times


if __name__ == "__main__":
    main(*sys.argv[1:])
