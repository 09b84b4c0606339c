"""Predicted beside measured training peaks, over architectures, micro-batches and optimizers.

Run it with `python -m tests.benchmarks.bench_planner [--quick]`. Every peak is measured in a
process of its own that trains in micro-batches of that size; the prediction comes from another
one, which never saw more than half of it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from shrink.engine.planner import MARGIN
from tests.benchmarks.architectures import ARCHITECTURES
from tests.benchmarks.planning import predictions, train
from tests.engine._run import run_in_fork, run_in_fresh_process

SIZES = (32, 64, 128, 256)
QUICK = (("conv", "adam"), ("attention", "sgd"), ("autoencoder", "adam"))
LIMIT = 2 * 1000**3
"""Far away: a limit makes training repeat its peak (see `shrink.engine.devices`)."""
_ENVIRONMENT = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def compare(architecture: str, optimizer: str, sizes: tuple[int, ...]) -> list[float]:
    """Print predicted, measured and error for each micro-batch; return the errors."""
    found = run_in_fresh_process(
        "tests.benchmarks.bench_planner",
        "measure",
        environment=_ENVIRONMENT,
        architecture=architecture,
        optimizer=optimizer,
        sizes=list(sizes),
    )
    errors = []
    for size in sizes:
        predicted, measured = found["predicted"][str(size)], found["measured"][str(size)]
        errors.append((predicted - measured) / measured)
        sys.stdout.write(
            f"{architecture:16} {optimizer:5} micro-batch {size:4}: predicted"
            f" {predicted / 1e6:7.1f} MB, measured {measured / 1e6:7.1f} MB, {errors[-1]:+6.1%}\n"
        )
        sys.stdout.flush()
    return errors


def measure(architecture: str, optimizer: str, sizes: list[int]) -> dict[str, dict[int, int]]:
    """Return predicted and measured peaks, in bytes, each from a fork of this process."""
    settings: dict[str, Any] = {
        "architecture": architecture,
        "optimizer": optimizer,
        "batch_size": 2 * sizes[-1],
        "memory_limit": LIMIT,
    }
    found: dict[str, dict[int, int]] = run_in_fork(predictions, sizes=sizes, **settings)
    measured = {size: run_in_fork(train, micro_batch_size=size, **settings)[0] for size in sizes}
    return {"predicted": found["predicted"], "measured": measured}


def main() -> None:
    """Compare every architecture with both optimizers, or a few."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three of them, two sizes")
    options = parser.parse_args()
    every = [(name, optimizer) for name in ARCHITECTURES for optimizer in ("sgd", "adam")]
    sizes = SIZES[-2:] if options.quick else SIZES
    errors = [e for pair in (QUICK if options.quick else every) for e in compare(*pair, sizes)]
    absolute = [abs(error) for error in errors]
    sys.stdout.write(
        f"{len(errors)} predictions: median error {statistics.median(absolute):.1%}, worst"
        f" {max(absolute):.1%}, most under {min(errors):+.1%} (margin {MARGIN:.0%})\n"
    )


if __name__ == "__main__":
    main()
