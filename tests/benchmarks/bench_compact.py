"""Arenas before and after `shrink compact`, on models of several families.

    python -m tests.benchmarks.bench_compact [--macs 0.05 0.25] [--models NAME...] [--folder DIR]
    python -m tests.benchmarks.bench_compact --files FOLDER [--macs 0.05]

Prints a line of JSON per model and share of multiply-accumulates: the smallest arena of TFLite
Micro's wheel as converted, after, and the bound of the plan, multiply-accumulates, the ratio of
processor time in LiteRT (XNNPACK), how outputs were compared, seconds by the clock, and processor
seconds of this process and its children. Models are kept in the folder. Unchanged files say why.
With --files it prints a row of a table for each .tflite file of a folder instead.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from shrink.base.errors import ShrinkError
from shrink.compact.compact import compact
from shrink.contract.codec import to_plain
from tests.benchmarks.compact_models import MODELS, stored_file
from tests.benchmarks.harness import by_turns, say, say_json

_ROUNDS, _LEAST_S = 15, 0.02


def main() -> None:
    """Print a line for each model and share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--macs", nargs="+", type=float, default=[0.05, 0.25])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--folder", type=Path, default=Path("compact-models"))
    parser.add_argument("--files", type=Path)
    options = parser.parse_args()
    for path in sorted(options.files.glob("*.tflite")) if options.files else ():
        say(row(path, options.macs[0]))
    if options.files:
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.models:
        content = stored_file(options.folder, name)
        for share in options.macs:
            say_json({"model": name, **measured(content, share)})


def measured(content: bytes, share: float) -> dict[str, object]:
    """Return what compaction with at most this share of more work gives."""
    begun, spent = time.monotonic(), _processor_seconds()
    found = compact(content, max_extra_macs=share)
    seconds = time.monotonic() - begun
    own, others = (now - then for now, then in zip(_processor_seconds(), spent, strict=True))
    return {
        "max_extra_macs": share,
        "arena_before": found.arena_before,
        "arena_after": found.arena_after,
        "arena_ratio": round(found.arena_after / found.arena_before, 3),
        "bound": found.bound_bytes,
        "extra_macs": round(found.macs_after / found.macs_before - 1, 4),
        "file_bytes": [len(content), len(found.content)],
        "time_ratio": round(time_ratio(content, found.content), 3) if found.changed else 1.0,
        "equality": None if found.equality is None else to_plain(found.equality),
        "reason": found.reason,
        "seconds": round(seconds, 1),
        "processor_seconds": {"own": round(own, 1), "children": round(others, 1)},
    }


def row(path: Path, share: float) -> str:
    """Return the row of a file: arenas before and after, their ratio, and how they compare."""
    try:
        found = compact(path.read_bytes(), max_extra_macs=share)
    except ShrinkError as error:
        return f"| {path.stem} | | | | {error.message[:120]} |"
    before, after = found.arena_before, found.arena_after
    if found.equality is None:
        return f"| {path.stem} | {before:,} | | | {found.reason} |"
    work = found.macs_after / max(found.macs_before, 1) - 1
    equal = f"equal in {len(found.equality.runtimes)} runtimes"
    return f"| {path.stem} | {before:,} | {after:,} | {after / before:.2f} | {work:+.1%}, {equal} |"


def _processor_seconds() -> tuple[float, float]:
    """Return the processor time of this process, and of its children that have ended."""
    usage = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, children = (one.ru_utime + one.ru_stime for one in usage)
    return own, children


def time_ratio(before: bytes, after: bytes) -> float:
    """Return how much longer the second file takes, the least processor time of several rounds."""
    runs = {"before": _timed(before), "after": _timed(after)}
    times = by_turns(runs, _ROUNDS)
    return min(times["after"]) / min(times["before"])


def _timed(content: bytes) -> Callable[[], float]:
    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
    interpreter.invoke()

    def run() -> float:
        count, begun = 0, time.process_time()
        while (spent := time.process_time() - begun) < _LEAST_S:
            interpreter.invoke()
            count += 1
        return spent / count

    return run


if __name__ == "__main__":
    main()
