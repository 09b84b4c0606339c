"""Training under the allocator's real limit, in the micro-batch that the planner chose for it.

Run it with `python -m tests.benchmarks.bench_budget [--pairs N]`. For random (model, limit) pairs:
the planner chooses, training runs with the allocator limited for real, and twice the micro-batch
is tried under the same limit to see whether it would have fitted.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

from tests.benchmarks.architectures import ARCHITECTURES
from tests.engine._run import run_in_fresh_process

BATCH_SIZE = 256
_MODULE = "tests.benchmarks.planning"
_ENVIRONMENT = {
    "TF_USE_LEGACY_KERAS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    # With oneDNN, running out of memory is a crash; without, only this allocator counts.
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
}


def check(architecture: str, optimizer: str, limit_mib: int) -> dict[str, bool] | None:
    """Print how one pair went; None where not even one example fits."""
    settings: dict[str, Any] = {
        "architecture": architecture,
        "optimizer": optimizer,
        "batch_size": BATCH_SIZE,
        "memory_limit": limit_mib << 20,
    }
    limited = {**_ENVIRONMENT, "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib)}
    limit = limit_mib << 20
    plan = run_in_fresh_process(_MODULE, "plan", environment=limited, **settings)
    name = f"{architecture:16} {optimizer:5} {limit_mib:4} MiB"
    if plan is None:
        sys.stdout.write(f"{name}: refused\n")
        return None
    size, predicted = plan
    try:
        peak, undisturbed, _ = run_in_fresh_process(
            _MODULE, "train", environment=limited, micro_batch_size=size, **settings
        )
    except RuntimeError as error:
        sys.stdout.write(f"{name}: micro-batch {size} died: {str(error)[:60]!r}\n")
        return {"completed": False, "undisturbed": False, "largest": False}
    largest = size == BATCH_SIZE or not _works(2 * size, limited, settings)
    sys.stdout.write(
        f"{name}: micro-batch {size:3}, predicted {(predicted or 0) / 2**20:6.1f} MiB, peak"
        f" {peak / 2**20:6.1f}"
        f"{'' if undisturbed else ', RAN OUT and recovered'}{'' if largest else ', NOT LARGEST'}\n"
    )
    sys.stdout.flush()
    return {"completed": peak <= limit, "undisturbed": undisturbed, "largest": largest}


def _works(size: int, limited: dict[str, str], settings: dict[str, Any]) -> bool:
    """Whether training under the limit never runs out of memory in micro-batches of this size."""
    try:
        _, undisturbed, _ = run_in_fresh_process(
            _MODULE, "train", environment=limited, micro_batch_size=size, **settings
        )
    except RuntimeError:
        return False
    return bool(undisturbed)


def main() -> None:
    """Check random pairs and count how they went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = random.Random(options.seed)
    results = [
        check(
            generator.choice(list(ARCHITECTURES)),
            generator.choice(["sgd", "adam"]),
            round(2 ** generator.uniform(5.5, 8)),
        )
        for _ in range(options.pairs)
    ]
    planned = [result for result in results if result is not None]
    for key in ("completed", "undisturbed", "largest"):
        sys.stdout.write(f"{key}: {sum(r[key] for r in planned)} of {len(planned)}\n")
    sys.stdout.write(f"refused: {len(results) - len(planned)}\n")


if __name__ == "__main__":
    main()
