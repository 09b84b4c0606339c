"""What accumulation costs: 512 examples as 8 x 64 beside a plain batch of 64, on MobileNet.

Run it with `python -m tests.benchmarks.bench_accumulation [--threads 2] [--limit] [--turns 3]`; a
turn takes about two minutes. Peak of the device's allocator and time per example, each in a fresh
process, taken in turns: plain Keras `fit` on 64, this training loop on 64, and on 512. Pictures are
bytes, as data sets store them. The accumulated peak, the worst of all turns, is compared with the
plain one plus a global batch of pictures; times are medians of turns, and so is their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from tests.engine._run import run_in_fresh_process

PLAIN, GLOBAL = 64, 512
LIMIT = 2 * 1000**3
"""Far away: under any limit operations run one after the other."""
UPDATES = 4
"""Of the global batch; plain batches take as many examples."""
_EXAMPLE_BYTES = 96 * 96 * 3
_ENVIRONMENT = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
_MODEL = {"architecture": "mobilenet", "optimizer": "adam"}


def measure(way: str, threads: int, limit: int | None) -> tuple[int, float]:
    """Return the peak in bytes and the seconds per example of one way, in a fresh process."""
    batch_size = GLOBAL if way == "accumulated" else PLAIN
    settings: dict[str, Any] = {
        **_MODEL,
        "batch_size": batch_size,
        "steps": UPDATES * GLOBAL // batch_size,
    }
    if way != "fit":
        settings |= {"memory_limit": limit, "micro_batch_size": PLAIN}
    peak, *_, seconds = run_in_fresh_process(
        "tests.benchmarks.planning",
        "fit" if way == "fit" else "train",
        environment={**_ENVIRONMENT, "TF_NUM_INTEROP_THREADS": str(threads)},
        **settings,
    )
    return peak, seconds


def main() -> None:
    """Print peaks and times of each turn, and their ratios over all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="between operations")
    parser.add_argument("--limit", action="store_true", help="under a memory limit, far away")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[tuple[int, float]]] = {"fit": [], "plain": [], "accumulated": []}
    for turn in range(options.turns):
        for way in list(found)[:: -1 if turn % 2 else 1]:
            found[way].append(measure(way, options.threads, LIMIT if options.limit else None))
            peak, seconds = found[way][-1]
            sys.stdout.write(
                f"{way:11} {peak / 2**20:6.1f} MiB, {seconds * 1e3:5.2f} ms per example\n"
            )
            sys.stdout.flush()
    accumulated = max(peak for peak, _ in found["accumulated"])
    for way, name in (("plain", "a plain batch here"), ("fit", "a batch in Keras' fit")):
        allowed = min(peak for peak, _ in found[way]) + GLOBAL * _EXAMPLE_BYTES
        ratios = [a / b for (_, a), (_, b) in zip(found["accumulated"], found[way], strict=True)]
        sys.stdout.write(
            f"{GLOBAL} as {GLOBAL // PLAIN} x {PLAIN} beside {name}: peak"
            f" {accumulated / allowed:.3f}x it and one global batch of pictures, time"
            f" {statistics.median(ratios):.3f}x ({min(ratios):.3f} to {max(ratios):.3f})\n"
        )


if __name__ == "__main__":
    main()
