"""What accumulation costs: 512 examples as 8 x 64 beside a plain batch of 64, on MobileNet.

Run it with `python -m tests.benchmarks.bench_accumulation [--threads 2] [--limit]`. Peak of the
device's allocator and time per example, each in a fresh process; pictures are bytes, as data sets
store them. The accumulated peak is compared with the plain one plus a global batch of pictures.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tests.engine._run import run_in_fresh_process

PLAIN, GLOBAL = 64, 512
LIMIT = 2 * 1000**3
"""Far away: under any limit operations run one after the other."""
_EXAMPLE_BYTES = 96 * 96 * 3
_ENVIRONMENT = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def measure(batch_size: int, threads: int, limit: int | None) -> tuple[int, float]:
    """Return the peak in bytes and the seconds per example, in micro-batches of 64."""
    settings: dict[str, Any] = {
        "architecture": "mobilenet",
        "optimizer": "adam",
        "batch_size": batch_size,
        "memory_limit": limit,
        "micro_batch_size": PLAIN,
    }
    environment = {**_ENVIRONMENT, "TF_NUM_INTEROP_THREADS": str(threads)}
    peak, _, seconds = run_in_fresh_process(
        "tests.benchmarks.planning", "train", environment=environment, **settings
    )
    return peak, seconds


def main() -> None:
    """Print both peaks and both times, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2, help="between operations")
    parser.add_argument("--limit", action="store_true", help="under a memory limit, far away")
    options = parser.parse_args()
    threads, limit = options.threads, LIMIT if options.limit else None
    (plain, plain_s), (accumulated, accumulated_s) = (
        measure(batch_size, threads, limit) for batch_size in (PLAIN, GLOBAL)
    )
    allowed = plain + GLOBAL * _EXAMPLE_BYTES
    sys.stdout.write(
        f"{threads} threads: plain {PLAIN}: {plain / 2**20:.1f} MiB, {plain_s * 1e3:.2f} ms per"
        f" example; {GLOBAL} as {GLOBAL // PLAIN} x {PLAIN}: {accumulated / 2**20:.1f} MiB,"
        f" {accumulated_s * 1e3:.2f} ms\npeak {accumulated / allowed:.3f}x a plain batch and one"
        f" global batch of pictures; time {accumulated_s / plain_s:.3f}x\n"
    )


if __name__ == "__main__":
    main()
