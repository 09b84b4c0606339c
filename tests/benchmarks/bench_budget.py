"""Training under the allocator's real limit, in the micro-batch that the planner chose for it.

Run it with `python -m tests.benchmarks.bench_budget [--pairs N] [--skip N]`; 20 pairs take
about a quarter of an hour. For random (model, limit) pairs: the planner chooses, training runs with
the allocator limited for real, and twice the micro-batch is tried under the same limit to see
whether it would have fitted. Nothing can exceed the limit: the allocator refuses. So what counts is
that training was refused nothing.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

from tests.benchmarks.architectures import ARCHITECTURES
from tests.benchmarks.planning import plan, train
from tests.engine._run import run_in_fork, run_in_fresh_process

BATCH_SIZE = 256
_ENVIRONMENT = {
    "TF_USE_LEGACY_KERAS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # With oneDNN, running out of memory is a crash; without, only this allocator counts.
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
}


def check(architecture: str, optimizer: str, limit_mib: int) -> dict[str, bool] | None:
    """Print how one pair went; None where not even one example fits."""
    found: dict[str, Any] | None = run_in_fresh_process(
        "tests.benchmarks.bench_budget",
        "measure",
        environment={**_ENVIRONMENT, "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib)},
        architecture=architecture,
        optimizer=optimizer,
        limit_mib=limit_mib,
    )
    sys.stdout.write(f"{architecture:16} {optimizer:5} {limit_mib:4} MiB: ")
    if found is None:
        sys.stdout.write("refused\n")
    elif "died" in found:
        sys.stdout.write(f"micro-batch {found['size']} died: {found['died'][:60]!r}\n")
    else:
        sys.stdout.write(
            f"micro-batch {found['size']:3}, predicted {(found['predicted'] or 0) / 2**20:6.1f} MiB"
            f", peak {found['peak'] / 2**20:6.1f}"
            f"{'' if found['undisturbed'] else ', RAN OUT and recovered'}"
            f"{'' if found['largest'] else ', NOT LARGEST'}\n"
        )
    sys.stdout.flush()
    if found is None:
        return None
    inside = "peak" in found and found["peak"] <= limit_mib << 20
    return {
        "completed within the limit": inside,
        "never refused memory": found.get("undisturbed", False),
        "in the largest micro-batch": found.get("largest", False),
    }


def measure(architecture: str, optimizer: str, limit_mib: int) -> dict[str, Any] | None:
    """Plan, train, and train with twice the micro-batch, each in a fork of this process."""
    settings: dict[str, Any] = {
        "architecture": architecture,
        "optimizer": optimizer,
        "batch_size": BATCH_SIZE,
        "memory_limit": limit_mib << 20,
    }
    chosen = run_in_fork(plan, **settings)
    if chosen is None:
        return None
    size, predicted = chosen
    found: dict[str, Any] = {"size": size, "predicted": predicted}
    try:
        found["peak"], found["undisturbed"], _ = run_in_fork(
            train, micro_batch_size=size, **settings
        )
    except RuntimeError as error:
        return {**found, "died": str(error)}
    found["largest"] = size == BATCH_SIZE or not _works(2 * size, settings)
    return found


def _works(size: int, settings: dict[str, Any]) -> bool:
    """Whether training under the limit never runs out of memory in micro-batches of this size."""
    try:
        run_in_fork(train, micro_batch_size=size, recovers=False, **settings)
    except RuntimeError:
        return False
    return True


def main() -> None:
    """Check random pairs and count how they went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="pairs that were checked before")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    pairs = [
        (
            generator.choice(list(ARCHITECTURES)),
            generator.choice(["sgd", "adam"]),
            round(2 ** generator.uniform(5.5, 8)),
        )
        for _ in range(options.pairs)
    ]
    results = [check(*pair) for pair in pairs[options.skip :]]
    planned = [result for result in results if result is not None]
    for key in planned[0] if planned else ():
        sys.stdout.write(f"{key}: {sum(r[key] for r in planned)} of {len(planned)}\n")
    sys.stdout.write(f"refused: {len(results) - len(planned)}\n")


if __name__ == "__main__":
    main()
