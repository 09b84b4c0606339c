"""The micro-batch size that fits a memory limit.

The peak of a training step follows max(a, b + s·m) in the micro-batch m: `a` is the update of
the weights, `b` all that does not depend on m, `s` the activations of one example. Sizes are
doubled while the line through the last two peaks stays within the limit, and a size is chosen
only if its own peak was measured to fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shrink.base.errors import ResourceError
from shrink.contract.job import MicroBatchPlan
from shrink.engine.config import TrainingConfig
from shrink.engine.devices import smallest_batch


@dataclass(frozen=True)
class BatchPlan:
    """How a global batch is split.

    Attributes:
        steps: updates per epoch, the remainder's included.
        most_rows: the most examples that a replica is given in one step.
        micro_batch_size: examples per forward pass and replica.
        never_empty: whether every replica has an example in every batch.
    """

    steps: int
    most_rows: int
    micro_batch_size: int
    never_empty: bool


def plan_batches(
    config: TrainingConfig, replicas: int, examples: int, validation_examples: int
) -> BatchPlan:
    """Split the global batch over replicas and micro-batches; `auto` is one micro-batch."""
    batch_size = config.global_batch_size
    most_rows = math.ceil(min(batch_size, examples) / replicas)
    micro_batch_size = most_rows if config.micro_batch_size == "auto" else config.micro_batch_size
    smallest = smallest_batch(examples, batch_size)
    if validation_examples:
        smallest = min(smallest, smallest_batch(validation_examples, batch_size))
    return BatchPlan(
        steps=config.batches_in(examples),
        most_rows=most_rows,
        micro_batch_size=min(micro_batch_size, most_rows),
        never_empty=smallest >= replicas,
    )


MARGIN = 0.05
"""Fraction of the limit that stays free where peaks differ between runs, with the order of
operations, and for sizes that are only predicted."""

PREDICTION_TOLERANCE = 0.25
"""Predictions that guide the search err by less than this fraction."""


def predict(probed: Mapping[int, int], size: int) -> int | None:
    """Return the peak to expect at a size, in bytes: the line through the last two smaller probes.

    Only probes of at most half of the size are used, as a planner has them. A line never falls.

    Args:
        probed: measured peaks, in bytes, by size.
        size: what to predict.

    Returns:
        The peak; None with fewer than two such probes.
    """
    known = sorted(s for s in probed if 2 * s <= size)[-2:]
    if len(known) < 2:
        return None
    return round(probed[known[1]] + _slope(probed, *known) * (size - known[1]))


def _slope(probed: Mapping[int, int], first: int, last: int) -> float:
    return max(0.0, (probed[last] - probed[first]) / (last - first))


def usable(limit: int, margin: float = MARGIN) -> int:
    """Return the bytes of a limit that a plan may use."""
    return int(limit * (1 - margin))


def search(
    peak: Callable[[int], int], largest: int, limit: int | None, *, tolerance: float = 0.0
) -> dict[int, int]:
    """Measure sizes 1, 2, 4, ... and `largest`, as long as the next is expected to fit.

    Args:
        peak: measures the peak of a size, in bytes; raises `ResourceError` out of memory.
        largest: where to end.
        limit: bytes; None for none.
        tolerance: sizes predicted up to this fraction over the limit are measured, too.

    Returns:
        Peaks in bytes by size, without those that ran out of memory. The last one may turn out
        not to fit.
    """
    probed: dict[int, int] = {}
    size = 1
    while True:
        expected = predict(probed, size)
        if limit is not None and expected is not None and expected > limit * (1 + tolerance):
            return probed
        try:
            probed[size] = peak(size)
        except ResourceError:
            return probed
        if size == largest or (limit is not None and probed[size] > limit):
            return probed
        size = min(2 * size, largest)


def choose(probed: Mapping[int, int], limit: int | None) -> MicroBatchPlan | None:
    """Return the plan with the largest size that was measured to fit; None if there is none."""
    fitting = [size for size, peak in probed.items() if limit is None or peak <= limit]
    if not fitting:
        return None
    size = max(fitting)
    return MicroBatchPlan(size, predict(probed, size), probed[size])


def largest_that_fits(probed: Mapping[int, int], limit: int) -> int:
    """Return the largest size expected to stay within a limit; 0 if none does.

    Beyond the largest probe, a size has to stay within the limit less the margin, on the line
    through the last two probes.
    """
    best = max((size for size, peak in probed.items() if peak <= limit), default=0)
    sizes = sorted(probed)
    if best != max(sizes, default=0) or len(sizes) < 2:
        return best
    slope, free = _slope(probed, *sizes[-2:]), usable(limit) - probed[best]
    return best + max(0, min(1 << 30, int(free / max(slope, 1.0))))


def cannot_fit(
    limit: int, needed: int, config: TrainingConfig, margin: float = MARGIN
) -> ResourceError:
    """Return the error for a limit that no micro-batch fits.

    Args:
        limit: bytes.
        needed: bytes that a micro-batch of one example takes, at least.
        config: the hint leaves out the settings that already save memory.
        margin: fraction of the limit that stays free.
    """
    enough = -(-needed // (1 - margin)) / 1e6
    savings = [
        ("recompute to auto", config.recompute == "off"),
        ("precision to mixed_bfloat16", config.precision == "float32"),
        ("optimizer.name to sgd", config.optimizer.name != "sgd"),
    ]
    changes = [f"training.{change}" for change, helps in savings if helps]
    return ResourceError(
        f"even a micro-batch of one example needs {needed / 1e6:.1f} MB, but the limit is "
        f"{limit / 1e6:.1f} MB" + (f", of which {margin:.0%} stays free" if margin else ""),
        subject="training.memory_limit",
        hint=f"set training.memory_limit to {enough + 0.1:.1f}MB; or set "
        f"{', '.join(changes)}{', or ' if changes else ''}a smaller training.global_batch_size; "
        "or use a smaller model",
    )
