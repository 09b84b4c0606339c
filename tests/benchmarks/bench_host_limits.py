"""Steps under limits of the host's memory: refused before they start, or completed within.

Run: python -m tests.benchmarks.bench_host_limits [--pairs 20] [--skip 0]

Random models of 1 to 60 MB of weights, stages (training, pruning, quantization) and limits of 1
to 3 GB. `training.host_memory_limit` says the limit; the resident memory of every process of the
run is read all the while, and one that exceeds the limit would have been ended by a control group
of that size. About 40 s of processor time a pair.
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
from pathlib import Path

import tf_keras as keras

from tests.benchmarks.harness import apart, say

_RECIPE = """\
name: host-limit
model: model.h5
data: {source: digits}
training: {host_memory_limit: %dMB, global_batch_size: 64}
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
        how = run(*pair)
        ended[how] = ended.get(how, 0) + 1
    say(", ".join(f"{count} {how}" for how, count in sorted(ended.items())))


def run(megabytes: float, stage: str, limit_mb: int) -> str:
    """Print and return how one pair ended."""
    with tempfile.TemporaryDirectory(prefix="shrink-host-") as name:
        folder = Path(name)
        apart(write_model, path=str(folder / "model.h5"), megabytes=megabytes)
        (folder / "recipe.yaml").write_text(_RECIPE % (limit_mb, stage))
        environment = {**os.environ, "SHRINK_CACHE_DIR": str(folder / "store")}
        began = time.monotonic()
        with (folder / "log").open("wb") as log:
            command = [sys.executable, "-m", "shrink", "run", "recipe.yaml", "--output", "out"]
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
            highest = 0
            while process.poll() is None:
                highest = max([highest, *map(_resident_bytes, _family(process.pid))])
                time.sleep(0.05)
        printed = (folder / "log").read_text("utf-8", "replace")
    code = process.returncode
    how = "completed" if code in (0, 1) else "refused" if code == 5 else f"ended with {code}"
    how += " ABOVE ITS LIMIT" if highest > limit_mb * 1e6 else ""
    said = "" if code in (0, 1) else next((x for x in printed.splitlines() if "error" in x), "")
    say(
        f"{megabytes:5.1f} MB, {stage.partition(':')[0]:8} limit {limit_mb} MB: {how} after"
        f" {time.monotonic() - began:.0f} s, largest process {highest / 1e6:.0f} MB {said[:150]}"
    )
    return how


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
