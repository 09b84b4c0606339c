"""Child process: allocate and run a model in TFLite Micro, and find the smallest arena for it.

TFLite Micro prints from C++. What it says while arenas are tried that are too small is thrown away;
what it says of the model itself goes to the parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from shrink.base.child import die_with_parent

ALLOCATED, SMALLEST, RUNS = "shrink-allocated", "shrink-smallest: ", "shrink-runs"
STEP_BYTES = 16


def main(parent: str, path: str, arena_bytes: str, inputs: str, run_limit_s: str) -> None:
    """Print that the model was allocated, the smallest arena in which it is, and that it runs.

    Args:
        parent: its process id.
        path: the .tflite file.
        arena_bytes: an arena that is large enough.
        inputs: how many the model has.
        run_limit_s: whole seconds that running it may take, after which SIGALRM ends this process;
            0 for no limit.
    """
    die_with_parent(int(parent))
    import numpy as np
    from tflite_micro import runtime

    content = Path(path).read_bytes()
    interpreter = runtime.Interpreter.from_bytes(content, arena_size=int(arena_bytes))
    say(ALLOCATED)

    def allocate(size: int) -> None:
        runtime.Interpreter.from_bytes(content, arena_size=size)

    with silence():
        smallest = smallest_arena(lambda size: survives(allocate, size), int(arena_bytes))
    say(f"{SMALLEST}{smallest}")
    for index in range(int(inputs)):
        detail = interpreter.get_input_details(index)
        interpreter.set_input(np.ones(detail["shape"], detail["dtype"]), index)
    signal.alarm(int(run_limit_s))
    interpreter.invoke()
    signal.alarm(0)
    say(RUNS)


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


def smallest_arena(fits: Callable[[int], bool], enough: int) -> int:
    """Return the smallest multiple of 16 bytes that fits, by bisection.

    Args:
        fits: whether an arena of so many bytes is large enough; larger ones then are, too.
        enough: a size that fits.
    """
    low, high = 0, -(-enough // STEP_BYTES)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * STEP_BYTES):
            high = middle
        else:
            low = middle
    return high * STEP_BYTES


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Throw away what the process prints, also from C++."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def say(line: str) -> None:
    """Print a line of its own, at once: the process may die before its end."""
    sys.stdout.write(f"\n{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
