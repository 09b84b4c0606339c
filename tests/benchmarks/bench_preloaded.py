"""A run whose workers are forks of a preloaded process, against one of fresh processes.

Run it with `python -m tests.benchmarks.bench_preloaded [--rounds N] [--recipe R] [--quantize]` on
an idle machine. Each run has a store of its own. Seconds by the clock, processor seconds of all
processes, the highest peak of a process, and whether .tflite files and metrics are the same.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import by_turns, say

ROOT = Path(__file__).parents[2]
WAYS = {"fresh processes": "0", "forks": "1"}


@dataclass(frozen=True)
class Took:
    """What a run took, and what it came to.

    Attributes:
        wall_s, processor_s: of the command and everything that it started.
        host_peak_bytes: the largest of its stages; 0 where nothing is trained.
        figures: of each stage, what must not depend on the way.
    """

    wall_s: float
    processor_s: float
    host_peak_bytes: int
    figures: Sequence[Any]


def main() -> None:
    """Print a line for each way, and how they compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way")
    parser.add_argument("--recipe", type=Path, default=ROOT / "recipes" / "digits.yaml")
    parser.add_argument(
        "--quantize", action="store_true", help="`shrink quantize` of a small model in its place"
    )
    chosen = parser.parse_args()
    say(f"load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory(prefix="bench-preloaded-") as folder:
        words = ["run", str(chosen.recipe.resolve())]
        if chosen.quantize:
            model = small_model(Path(folder))
            words = ["quantize", str(model), "--data", "digits", "--scheme", "static_wi8_ai8"]
        took = by_turns(
            {name: functools.partial(once, words, way) for name, way in WAYS.items()}, chosen.rounds
        )
    for name, runs in took.items():
        wall, processor = (
            statistics.median(getattr(run, figure) for run in runs)
            for figure in ("wall_s", "processor_s")
        )
        peak = max(run.host_peak_bytes for run in runs) / 1e6
        say(f"{name:<16} {wall:6.1f} s {processor:6.1f} s of processor  host peak {peak:6.0f} MB")
    same = len({json.dumps(run.figures) for runs in took.values() for run in runs}) == 1
    say(f"artifacts and metrics {'the same to the bit' if same else 'DIFFER'}")


def small_model(folder: Path) -> Path:
    """Write an untrained network of about 100 KB in a process of its own; return its path."""
    path = folder / "model.keras"
    code = (
        "import tf_keras as k; l = k.layers; i = l.Input((8, 8, 1)); "
        "h = l.Conv2D(32, 3, activation='relu')(i); h = l.Conv2D(64, 3, activation='relu')(h); "
        f"k.Model(i, l.Dense(10)(l.GlobalAveragePooling2D()(h))).save({str(path)!r})"
    )
    told = {**os.environ, "TF_USE_LEGACY_KERAS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=told, capture_output=True)
    return path


def once(words: Sequence[str], way: str) -> Took:
    """Run shrink in a folder and with a store of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-preloaded-run-") as folder:
        out = Path(folder) / "out"
        environment = {**os.environ, "SHRINK_CACHE_DIR": f"{folder}/store", "SHRINK_PRELOAD": way}
        command = [sys.executable, "-P", "-m", "shrink", *words, "--output", str(out), "--quiet"]
        before, started = processor_s(), time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
        wall_s = time.perf_counter() - started
        if not (out / "report.json").is_file():
            raise SystemExit(done.stderr)
        stages = json.loads((out / "report.json").read_text("utf-8"))["stages"]
        peaks = [stage["memory"]["training_host_peak_bytes"] or 0 for stage in stages]
        figures = [
            [stage["metrics"], stage["size"]["tflite_bytes"], stage["memory"]["arena_bytes"]]
            + [stage["sha256"]] * str(stage["artifact"]).endswith(".tflite")
            for stage in stages
        ]
        return Took(wall_s, processor_s() - before, max(peaks), figures)


def processor_s() -> float:
    """Return the processor time of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
