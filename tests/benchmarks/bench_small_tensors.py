"""Training peaks on a CPU beside a count of every allocation.

Run: python -m tests.benchmarks.bench_small_tensors [--quick]

Needs a C compiler. In one process `allocation_counter.c` stands before malloc and before the
methods of TensorFlow's allocator, and counts at every call; the peak is what it saw rise in a step,
and what is held between steps: variables under 256 KiB, and what the allocator says that it holds.
In another process, without it, the peak is measured as training measures it. Both make the same
steps, in order. About 25 s a model on two idle cores.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from shrink.engine.probe import TrainingStep
from shrink.measure.small_tensors import small_variables_bytes
from tests.benchmarks import planning
from tests.benchmarks.harness import apart, say

MODELS = (
    *("lstm", "gru", "attention", "autoencoder"),
    *("conv", "depthwise", "residual", "dense_connected"),
)
SIZES = (8, 32, 128, 256)
_BATCH_SIZE = 256
_LIMIT = 2 * 1000**3
_STEPS = 4
_SOURCE = Path(__file__).with_name("allocation_counter.c")


def main() -> None:
    """Print both figures of each model and micro-batch, and how far they are apart."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="an LSTM and convolutions")
    options = parser.parse_args()
    errors: list[float] = []
    with tempfile.TemporaryDirectory(prefix="shrink-counter-") as folder:
        counter = Path(folder) / "counter.so"
        build = ["cc", "-O2", "-shared", "-fPIC", "-o", str(counter), str(_SOURCE), "-ldl"]
        subprocess.run(build, check=True)
        for model in ("lstm", "conv") if options.quick else MODELS:
            errors += compare(model, counter)
    absolute = [abs(error) for error in errors]
    say(f"{len(errors)} peaks: median {statistics.median(absolute):.1%}, worst {max(absolute):.1%}")


def compare(model: str, counter: Path) -> list[float]:
    """Print the figures of one model, and return the errors."""
    library = Path(tf.__file__).with_name("libtensorflow_framework.so.2")
    preloaded = {"LD_PRELOAD": str(counter), "TENSORFLOW": str(library)}
    counted = apart(count, environment=preloaded, model=model, sizes=list(SIZES))
    measured = apart(measure, model=model, sizes=list(SIZES))
    errors = []
    for size in SIZES:
        truth, (found, allocator, slower) = counted[str(size)], measured[str(size)]
        errors.append(found / truth - 1)
        say(
            f"{model:16} micro-batch {size:4}: {found / 1e6:7.2f} MB, of which the allocator counts"
            f" {allocator / 1e6:7.2f}; every allocation {truth / 1e6:7.2f}, {errors[-1]:+6.1%};"
            f" steps looked at take {slower:.2f}x"
        )
    return errors


def count(model: str, sizes: list[int]) -> dict[str, int]:
    """Return the peak that the counter saw, in bytes, by micro-batch."""
    library = ctypes.CDLL(None)
    for name in ("counter_live", "counter_highest"):
        getattr(library, name).restype = ctypes.c_long
    step = planning.training_step(model, "adam", _BATCH_SIZE, _LIMIT)
    found = {}
    for size, batches in _prepared(step, sizes):
        rise = 0
        for _ in range(_STEPS):
            before = library.counter_live()
            library.counter_reset()
            step.make_update(batches)
            rise = max(rise, library.counter_highest() - before)
        allocator = tf.config.experimental.get_memory_info("CPU:0")["current"]
        found[str(size)] = rise + allocator + small_variables_bytes()
    return found


def measure(model: str, sizes: list[int]) -> dict[str, list[float]]:
    """Return the peak and its allocator's part in bytes, and the slowdown, by micro-batch."""
    step = planning.training_step(model, "adam", _BATCH_SIZE, _LIMIT)
    found = {}
    for size, batches in _prepared(step, sizes):
        plain_s = _seconds(step, batches)
        peak = step.peak_of(lambda batches=batches: step.make_update(batches))  # type: ignore[misc]
        step.memory.small.begin()
        looked_s = _seconds(step, batches)
        step.memory.small.end()
        found[str(size)] = [peak, step.memory.peak() or 0, looked_s / plain_s]
    return found


def _seconds(step: TrainingStep, batches: Any) -> float:
    took = []
    for _ in range(_STEPS):
        began = time.perf_counter()
        step.make_update(batches)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _prepared(step: TrainingStep, sizes: list[int]) -> Any:
    batches = step.batches(_BATCH_SIZE)
    for size in sizes:
        step.use_loop(size)
        for _ in range(2):
            step.make_update(batches)
        yield size, batches


if __name__ == "__main__":
    main()
