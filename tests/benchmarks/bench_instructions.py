"""How many more instructions a rewritten .tflite file takes, by Valgrind: a time without noise.

    python -m tests.benchmarks.bench_instructions BEFORE.tflite AFTER.tflite

Prints a line of JSON for TFLite Micro (the wheel, with its reference kernels) and for LiteRT with
XNNPACK: instructions of one inference of each file, and their ratio. What a process does beside is
left out by counting one inference and four. Needs `valgrind`; a minute or so for each count.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.harness import say_json

_FEW, _MORE = 1, 4
_RUNTIMES = ("tflite_micro", "litert_xnnpack")


def main() -> None:
    """Print a line for each runtime."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="BEFORE.tflite AFTER.tflite")
    parser.add_argument("--invoke", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.invoke:
        _invoke(options.invoke[0], options.files[0], int(options.invoke[1]))
        return
    for runtime in _RUNTIMES:
        before, after = (_instructions(runtime, path) for path in options.files)
        ratio = round(after / before, 3)
        say_json({"runtime": runtime, "before": before, "after": after, "ratio": ratio})


def _instructions(runtime: str, path: Path) -> int:
    """Return the instructions of one inference."""
    few, more = (_counted(runtime, path, times) for times in (_FEW, _MORE))
    return (more - few) // (_MORE - _FEW)


def _counted(runtime: str, path: Path, times: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, "-m", "tests.benchmarks.bench_instructions", str(path)]
        alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        run = subprocess.run(
            [*command, "--invoke", runtime, str(times)],
            capture_output=True, text=True, check=True, env={**alone, "PYTHONHASHSEED": "0"},
        )  # fmt: skip
    found = re.search(r"Collected : (\d+)", run.stderr)
    assert found is not None, run.stderr[-500:]
    return int(found[1])


def _invoke(runtime: str, path: Path, times: int) -> None:
    """Run a file on zeros, so many times after a first one."""
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    litert = Interpreter(model_path=str(path), num_threads=1)
    details = litert.get_input_details()
    given = [np.zeros(detail["shape"], detail["dtype"]) for detail in details]
    if runtime == "tflite_micro":
        from tflite_micro import runtime as micro

        interpreter = micro.Interpreter.from_file(str(path), arena_size=16 << 20)
        for place, values in enumerate(given):
            interpreter.set_input(values, place)
    else:
        interpreter = litert
        interpreter.allocate_tensors()
        for detail, values in zip(details, given, strict=True):
            interpreter.set_tensor(detail["index"], values)
    for _ in range(times + 1):
        interpreter.invoke()
    os._exit(0)  # an interpreter's end is no inference


if __name__ == "__main__":
    main()
