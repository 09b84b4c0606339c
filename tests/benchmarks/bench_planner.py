"""Plans of memory beside what training takes: predictions, and training under limits.

Run: python -m tests.benchmarks.bench_planner predictions [--quick]
     python -m tests.benchmarks.bench_planner limits [--pairs 20] [--skip 0]

predictions: predicted beside measured training peaks, over architectures, micro-batches and
optimizers. Every peak is measured in a process of its own that trains in micro-batches of that
size; the prediction comes from another one, which never saw more than half of it.

limits: training under the allocator's real limit, in the micro-batch that was chosen for it; 20
pairs take about a quarter of an hour. For random (model, limit) pairs: the planner chooses,
training runs with the allocator limited for real, and twice the micro-batch is tried under the same
limit to see whether it would have fitted. Nothing can exceed the limit: the allocator refuses. So
what counts is that training was refused nothing.
"""

from __future__ import annotations

import argparse
import random
import statistics
from typing import Any

from shrink.engine.planner import MARGIN
from tests.benchmarks import planning
from tests.benchmarks.architectures import ARCHITECTURES
from tests.benchmarks.harness import apart, say, subcommands
from tests.engine._run import run_in_fork

SIZES = (32, 64, 128, 256)
QUICK = (("conv", "adam"), ("attention", "sgd"), ("autoencoder", "adam"))
LIMIT = 2 * 1000**3
"""Far away: a limit makes training repeat its peak (see `shrink.engine.devices`)."""
BATCH_SIZE = 256
_LIMITED = {
    # With oneDNN, running out of memory is a crash; without, only this allocator counts.
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
}


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    of = subcommands(parser, {"predictions": predict, "limits": limits})
    of["predictions"].add_argument("--quick", action="store_true", help="three, two sizes")
    of["limits"].add_argument("--pairs", type=int, default=20)
    of["limits"].add_argument("--seed", type=int, default=0)
    of["limits"].add_argument("--skip", type=int, default=0, help="pairs that were checked before")
    options = parser.parse_args()
    options.run(options)


def predict(options: argparse.Namespace) -> None:
    """Predicted beside measured peaks, and the errors."""
    every = [(name, optimizer) for name in ARCHITECTURES for optimizer in ("sgd", "adam")]
    sizes = SIZES[-2:] if options.quick else SIZES
    errors = [e for pair in (QUICK if options.quick else every) for e in compare(*pair, sizes)]
    absolute = [abs(error) for error in errors]
    say(
        f"{len(errors)} predictions: median error {statistics.median(absolute):.1%}, worst"
        f" {max(absolute):.1%}, most under {min(errors):+.1%} (margin {MARGIN:.0%})"
    )


def compare(architecture: str, optimizer: str, sizes: tuple[int, ...]) -> list[float]:
    """Print predicted, measured and error for each micro-batch; return the errors."""
    found = apart(peaks, architecture=architecture, optimizer=optimizer, sizes=list(sizes))
    errors = []
    for size in sizes:
        predicted, measured = found["predicted"][str(size)], found["measured"][str(size)]
        errors.append((predicted - measured) / measured)
        say(
            f"{architecture:16} {optimizer:5} micro-batch {size:4}: predicted"
            f" {predicted / 1e6:7.1f} MB, measured {measured / 1e6:7.1f} MB, {errors[-1]:+6.1%}"
        )
    return errors


def peaks(architecture: str, optimizer: str, sizes: list[int]) -> dict[str, Any]:
    """Return predicted and measured peaks, in bytes, each from a fork of this process."""
    settings: dict[str, Any] = {
        "architecture": architecture,
        "optimizer": optimizer,
        "batch_size": 2 * sizes[-1],
        "memory_limit": LIMIT,
    }
    found = run_in_fork(planning.predictions, sizes=sizes, **settings)
    measured = {
        size: run_in_fork(planning.train, micro_batch_size=size, **settings)[0] for size in sizes
    }
    return {"predicted": found["predicted"], "measured": measured}


def limits(options: argparse.Namespace) -> None:
    """Training under random limits, counted by how it went."""
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
        say(f"{key}: {sum(r[key] for r in planned)} of {len(planned)}")
    say(f"refused: {len(results) - len(planned)}")


def check(architecture: str, optimizer: str, limit_mib: int) -> dict[str, bool] | None:
    """Print how one pair went; None where not even one example fits."""
    found = apart(
        under_limit,
        environment={**_LIMITED, "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib)},
        architecture=architecture,
        optimizer=optimizer,
        limit_mib=limit_mib,
    )
    say(f"{architecture:16} {optimizer:5} {limit_mib:4} MiB: {_told(found)}")
    if found is None:
        return None
    inside = "peak" in found and found["peak"] <= limit_mib << 20
    return {
        "completed within the limit": inside,
        "never refused memory": found.get("undisturbed", False),
        "in the largest micro-batch": found.get("largest", False),
    }


def _told(found: dict[str, Any] | None) -> str:
    if found is None:
        return "refused"
    if "died" in found:
        return f"micro-batch {found['size']} died: {found['died'][:60]!r}"
    return (
        f"micro-batch {found['size']:3}, predicted {(found['predicted'] or 0) / 2**20:6.1f} MiB"
        f", peak {found['peak'] / 2**20:6.1f}"
        f"{'' if found['undisturbed'] else ', RAN OUT and recovered'}"
        f"{'' if found['largest'] else ', NOT LARGEST'}"
    )


def under_limit(architecture: str, optimizer: str, limit_mib: int) -> dict[str, Any] | None:
    """Plan, train, and train with twice the micro-batch, each in a fork of this process."""
    settings: dict[str, Any] = {
        "architecture": architecture,
        "optimizer": optimizer,
        "batch_size": BATCH_SIZE,
        "memory_limit": limit_mib << 20,
    }
    chosen = run_in_fork(planning.plan, **settings)
    if chosen is None:
        return None
    size, predicted = chosen
    found: dict[str, Any] = {"size": size, "predicted": predicted}
    try:
        found["peak"], found["undisturbed"] = run_in_fork(
            planning.train, micro_batch_size=size, **settings
        )
    except RuntimeError as error:
        return {**found, "died": str(error)}
    found["largest"] = size == BATCH_SIZE or not _works(2 * size, settings)
    return found


def _works(size: int, settings: dict[str, Any]) -> bool:
    """Whether training under the limit never runs out of memory in micro-batches of this size."""
    try:
        run_in_fork(planning.train, micro_batch_size=size, recovers=False, **settings)
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    main()
