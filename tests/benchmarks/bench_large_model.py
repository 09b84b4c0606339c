"""What loading, converting and measuring a large model takes: `shrink prune` of a ResNet50.

Run it with `python -m tests.benchmarks.bench_large_model [--rounds N] [--against CHECKOUT]`.

A `.keras` file of random weights (94 MB) loses half of its channels, without any training, over
pictures made on the spot, with a store of its own each time. Printed are processor seconds of all
processes and seconds by the clock; with another checkout of shrink runs of both by turns, and
whether they came to the same figures.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras as keras
from PIL import Image

from tests.benchmarks.bench_preloaded import processor_s
from tests.benchmarks.harness import apart, by_turns, say

ROOT = Path(__file__).parents[2]
WORDS = ("--method", "channels", "--ratio", "0.5", "--epochs", "0", "--quiet")
PICTURES, CLASSES, SIDE = 400, 4, 64
UNSTEADY = {
    "latency": ("p50_ms", "p90_ms"),
    "memory": ("inference_peak_bytes", "stage_host_peak_bytes", "training_host_peak_bytes"),
    "size": ("gzip_bytes",),
}
"""What two runs of one checkout differ in, too: times, resident memory, and the bytes of a `.keras`
archive, which holds the time at which it was written."""
FIGURES = (
    "size",
    "memory",
    "latency",
    "metrics",
    "guess",
    "skipped",
    "notes",
    "details",
    "warnings",
)


@dataclass(frozen=True)
class Took:
    """What a run took, and what it came to.

    Attributes:
        wall_s, processor_s: of the command and everything that it started.
        stages: of its report, without what no two runs share.
    """

    wall_s: float
    processor_s: float
    stages: Sequence[Mapping[str, Any]]


def main() -> None:
    """Print a line for each checkout, and how they compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each checkout")
    parser.add_argument("--against", type=Path, help="the folder of another checkout of shrink")
    chosen = parser.parse_args()
    say(f"load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    checkouts = {"this checkout": ROOT}
    if chosen.against is not None:
        checkouts["the other one"] = chosen.against.resolve()
    with tempfile.TemporaryDirectory(prefix="bench-large-") as folder:
        apart(write_inputs, folder=folder)
        ways = {n: functools.partial(once, Path(folder), path) for n, path in checkouts.items()}
        took = by_turns(ways, chosen.rounds)
    for name, runs in took.items():
        wall, processor = (
            [getattr(run, figure) for run in runs] for figure in ("wall_s", "processor_s")
        )
        say(
            f"{name}: {statistics.median(processor):.1f} s of processor time "
            f"({min(processor):.1f} to {max(processor):.1f}), {statistics.median(wall):.1f} s"
        )
    first = next(iter(took.values()))[0].stages
    all_stages = [run.stages for one in took.values() for run in one]
    differing = {name for stages in all_stages for name in differ(first, stages)}
    say(f"figures that differ: {', '.join(sorted(differing)) or 'none'}")


def once(folder: Path, checkout: Path) -> Took:
    """Run a checkout's shrink with a store of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-large-run-") as name:
        out = Path(name) / "out"
        environment = {**os.environ, "SHRINK_CACHE_DIR": f"{name}/store"}
        command = [sys.executable, "-P", "-m", "shrink", "prune", str(folder / "model.keras")]
        command += ["--data", str(folder / "pictures"), *WORDS, "--output", str(out)]
        told = {**environment, "PYTHONPATH": str(checkout)}
        before, started = processor_s(), time.perf_counter()
        done = subprocess.run(command, env=told, capture_output=True, text=True, cwd=name)
        wall_s = time.perf_counter() - started
        if not (out / "report.json").is_file():
            raise SystemExit(done.stderr)
        stages = json.loads((out / "report.json").read_text("utf-8"))["stages"]
        return Took(wall_s, processor_s() - before, [steady(stage) for stage in stages])


def steady(stage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stage's figures that are the same in every run."""
    kept = {key: stage[key] for key in FIGURES if key in stage}
    return {
        key: {k: v for k, v in value.items() if k not in UNSTEADY.get(key, ())}
        if isinstance(value, dict)
        else value
        for key, value in kept.items()
    }


def differ(first: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of what differs between two runs' stages, of what both of them know."""
    if len(first) != len(other):
        return ["the number of stages"]
    return [
        f"{position}: {key}"
        for position, (mine, yours) in enumerate(zip(first, other, strict=True))
        for key in sorted({*mine} & {*yours})
        if not alike(mine[key], yours[key])
    ]


def alike(mine: Any, yours: Any) -> bool:
    """Whether two figures are equal, of groups of them those that are in both."""
    if isinstance(mine, dict) and isinstance(yours, dict):
        return all(alike(mine[key], yours[key]) for key in {*mine} & {*yours})
    return bool(mine == yours)


def write_inputs(folder: str) -> None:
    """Write a ResNet50 of random weights, and pictures of noise in a folder for each class."""
    keras.utils.set_random_seed(0)
    shape = (SIDE, SIDE, 3)
    model = keras.applications.ResNet50(weights=None, input_shape=shape, classes=CLASSES)
    model.save(Path(folder) / "model.keras")
    generator = np.random.default_rng(0)
    for number in range(PICTURES):
        path = Path(folder) / "pictures" / f"class{number % CLASSES}" / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, shape, np.uint8)).save(path)


if __name__ == "__main__":
    main()
