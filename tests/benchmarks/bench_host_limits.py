"""Steps under limits of the host's memory: refused before they start, or completed within.

Run: python -m tests.benchmarks.bench_host_limits [--cgroup] [--pairs 20] [--skip 0]

Random models of 1 to 60 MB of weights, stages (training, pruning, quantization) and limits of 1
to 3 GB. About 40 s of processor time a pair.

With `--cgroup`, which needs root, each run has a control group with that limit, of which the recipe
says nothing: shrink finds it, and the kernel ends what exceeds it. Without, it is
`training.host_memory_limit` that says the limit; the resident memory of every process of the run is
read all the while, and one above the limit would have been ended by a group of that size.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import tf_keras as keras

from tests.benchmarks.control_group import control_group
from tests.benchmarks.harness import apart, say

_RECIPE = """\
name: host-limit
model: model.h5
data: {source: digits}
training: {%sglobal_batch_size: 64}
stages:
  - %s
"""
STAGES = (
    "train: {epochs: 1}",
    "prune: {method: magnitude, sparsity: 0.5, epochs: 1}",
    "quantize: {scheme: dynamic_wi8_afp32}",
)


def main() -> None:
    """Print how each pair went, and how many exceeded their limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--skip", type=int, default=0, help="pairs that were run before")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cgroup", action="store_true", help="a control group for each run")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    pairs = [
        (
            2 ** generator.uniform(0, 6),
            generator.choice(STAGES),
            round(generator.uniform(1000, 3000)),
        )
        for _ in range(options.pairs)
    ]
    ended: dict[str, int] = {}
    for pair in pairs[options.skip :]:
        how = run(*pair, in_group=options.cgroup)
        ended[how] = ended.get(how, 0) + 1
    say(", ".join(f"{count} {how}" for how, count in sorted(ended.items())))


def run(megabytes: float, stage: str, limit_mb: int, *, in_group: bool) -> str:
    """Print and return how one pair ended."""
    limit = limit_mb * 10**6
    with tempfile.TemporaryDirectory(prefix="shrink-host-") as name:
        folder = Path(name)
        apart(write_model, path=str(folder / "model.h5"), megabytes=megabytes)
        said = "" if in_group else f"host_memory_limit: {limit_mb}MB, "
        (folder / "recipe.yaml").write_text(_RECIPE % (said, stage))
        command = [sys.executable, "-m", "shrink", "run", "recipe.yaml", "--output", "out"]
        began = time.monotonic()
        if in_group:
            with control_group(limit) as group:
                code, highest = _watched(group.command(command), folder)
                killed = group.kills() > 0
                held = f"group {group.peak_bytes() / 1e6:.0f} MB, "
        else:
            code, highest = _watched(command, folder)
            killed, held = highest > limit, ""
        printed = (folder / "log").read_text("utf-8", "replace")
    how = "completed" if code in (0, 1) else "refused" if code == 5 else f"ended with {code}"
    if how == "refused" and "[1/" in printed:
        how = "refused after it began"
    how += " KILLED" if killed else ""
    error = "" if code in (0, 1) else next((x for x in printed.splitlines() if "error" in x), "")
    say(
        f"{megabytes:5.1f} MB, {stage.partition(':')[0]:8} limit {limit_mb} MB: {how} after"
        f" {time.monotonic() - began:.0f} s, {held}largest process {highest / 1e6:.0f} MB"
        f" {error[:150]}"
    )
    return how


def _watched(command: Sequence[str], folder: Path) -> tuple[int, int]:
    """Run a command; return its exit code, and the most bytes that one of its processes held."""
    environment = {**os.environ, "SHRINK_CACHE_DIR": str(folder / "store")}
    highest = 0
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        while process.poll() is None:
            highest = max([highest, *map(_resident_bytes, _family(process.pid))])
            time.sleep(0.05)
    return process.returncode, highest


def write_model(path: str, megabytes: float) -> None:
    """Write a classifier of digits with so many megabytes of weights."""
    units = int((megabytes * 1e6 / 4) ** 0.5)
    layers = keras.layers
    inputs = layers.Input((8, 8, 1))
    x = layers.Dense(units, activation="relu")(layers.Flatten()(inputs))
    x = layers.Dense(units, activation="relu")(x)
    keras.Model(inputs, layers.Dense(10, activation="softmax")(x)).save(path)


def _family(pid: int) -> list[int]:
    """Return a process and all that came of it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (entry / "stat").read_text("ascii", "replace")
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


if __name__ == "__main__":
    main()
