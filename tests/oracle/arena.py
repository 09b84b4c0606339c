"""The smallest arena with which TFLite Micro allocates a file; a process of its own.

Run as `python -m tests.oracle.arena FILE...`: prints a JSON list of bytes or nulls with reasons.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RESOLUTION = 16
MOST = 1 << 28


def smallest_arenas(paths: list[Path]) -> list[tuple[int | None, str]]:
    """Return, for each file, bytes to a multiple of 16, or None and why it is refused."""
    command = [sys.executable, "-m", "tests.oracle.arena", *map(str, paths)]
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=root, check=False, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"TFLite Micro could not be asked:\n{done.stderr}")
    return [tuple(pair) for pair in json.loads(done.stdout.splitlines()[-1])]


def _allocates(runtime: Any, content: bytes, size: int) -> bool:
    """Try an arena in a child: TFLite Micro sometimes dies where it is too small."""
    child = os.fork()
    if not child:
        code = 1
        try:
            runtime.Interpreter.from_bytes(content, arena_size=size)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def _smallest(runtime: Any, path: Path) -> tuple[int | None, str]:
    content = path.read_bytes()
    high = 1 << 12
    while not _allocates(runtime, content, high):
        high *= 4
        if high > MOST:
            return None, "TFLite Micro does not allocate it"
    low, high = 0, high // RESOLUTION  # in units of 16 bytes: `low` fails, `high` allocates
    while high - low > 1:
        middle = (low + high) // 2
        if _allocates(runtime, content, middle * RESOLUTION):
            high = middle
        else:
            low = middle
    return high * RESOLUTION, ""


def main(arguments: list[str]) -> None:
    """Print the arenas of the files that are named."""
    from tflite_micro.python.tflite_micro import runtime

    found = [_smallest(runtime, Path(path)) for path in arguments]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
