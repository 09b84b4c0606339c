"""The micro-batch size and recomputation that fit a memory limit.

The peak of a training step follows max(a, b + s·m) in the micro-batch m: `a` is the update of
the weights, `b` what is held whatever m is, `s` the activations of one example. A size is
predicted from probes of at most half of it: lines through smaller ones err by half, for the
allocator does not count small tensors, and rounds the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from shrink.base.errors import ResourceError
from shrink.contract.job import MicroBatchPlan
from shrink.contract.training import Training
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
    config: Training, replicas: int, examples: int, validation_examples: int
) -> BatchPlan:
    """Split the global batch over replicas and micro-batches; `auto` is one micro-batch."""
    batch_size = config.global_batch_size
    most_rows = math.ceil(min(batch_size, examples) / replicas)
    micro_batch_size = most_rows if config.micro_batch_size == "auto" else config.micro_batch_size
    smallest = smallest_batch(examples, batch_size)
    if validation_examples:
        smallest = min(smallest, smallest_batch(validation_examples, batch_size))
    return BatchPlan(
        steps=math.ceil(examples / batch_size),
        most_rows=most_rows,
        micro_batch_size=min(micro_batch_size, most_rows),
        never_empty=smallest >= replicas,
    )


MARGIN = 0.05
"""Part of the limit that stays free where peaks differ between runs, with the order of operations,
and under what is only predicted."""

PREDICTION_TOLERANCE = 0.25
"""Predictions are wrong by less than this part."""


@dataclass(frozen=True)
class Floor:
    """Bounds, in bytes, on what a step holds beside activations: `b` of the peak's model.

    Attributes:
        low: the least, from what the allocator holds between steps.
        high: the most.
        slack: how far below the peak of the smallest probe the constant lies at most, examples
            aside: the update may hold so much more.
    """

    low: float = 0.0
    high: float = math.inf
    slack: float = math.inf


class Probe(Protocol):
    """Measures the peak of a training step."""

    @property
    def floor(self) -> Floor:
        """What a step holds beside activations; known once `peak` was called."""

    def peak(self, size: int) -> int:
        """Return the peak, in bytes, of a step in micro-batches of `size`."""


def predict(probed: Mapping[int, int], size: int, floor: Floor | None = None) -> int | None:
    """Return the peak to expect at a size, in bytes, from the probes up to half of it.

    The line through the last two is kept where its constant lies within `floor`; else the constant
    is moved there. Of the two slopes that this leaves the last is taken where they rise, for more
    tensors are counted the larger they are, and the mean where they fall. Behind a flat it is the
    steepest line through probes above it (see `search`); where there is but one, the constant is
    the least, for the bend may be just below it. A peak that is followed by a lower one tells how
    far apart two peaks of one size may be, by where weights and sums lie: so much is added, and at
    most what is held of these. More is the allocator's, near its limit.

    Args:
        probed: measured peaks, in bytes, by size.
        size: what to predict.
        floor: bounds on the constant; none by default.

    Returns:
        The peak; None without a probe of at most half of `size`.
    """
    floor = floor or Floor()
    known = sorted(s for s in probed if 2 * s <= size)
    if not known:
        return None
    last, rising = known[-1], _rising(probed, known)
    held = _constant(probed, known, floor, rising)
    sizes = known[-1:] if rising else known[-2:]
    slopes = [max(0.0, probed[s] - held) / s for s in sizes]
    slope = max(slopes[-1], sum(slopes) / len(slopes))
    fall = min(_largest_fall(probed, known), floor.low)
    return round(max(probed[last], held + slope * size) + fall)


_NOISE_BYTES = 16_000
"""Two peaks of one size differ by less, for small tensors are sampled; 8 KB were seen."""
_OF_A_FLAT = 3
"""Sizes with one peak that make a flat."""


def _level(probed: Mapping[int, int], size: int) -> int | None:
    """Return the peak of the flat on which a quarter of a size lies, in bytes; None without one."""
    quarter = size // 4
    if size % 4 or quarter not in probed:
        return None
    level = probed[quarter]
    alike = [s for s in probed if s <= quarter and abs(probed[s] - level) <= _NOISE_BYTES]
    return level if len(alike) >= _OF_A_FLAT else None


def _rising(probed: Mapping[int, int], known: list[int]) -> list[int]:
    """Return the sizes from half of the last on that are above the flat before it; none without.

    Two exactly alike before the last are a flat, too.
    """
    last = known[-1]
    level = _level(probed, last)
    if level is None:
        before = [probed[size] for size in known[-3:-1]]
        is_flat = len(before) > 1 and before[0] == before[1] < probed[last]
        return [last] if is_flat else []
    return [s for s in known if 2 * s >= last and probed[s] > level + _NOISE_BYTES]


def _largest_fall(probed: Mapping[int, int], sizes: list[int]) -> int:
    falls = (probed[a] - min(probed[b] for b in sizes if b >= a) for a in sizes)
    return max(falls)


def _constant(
    probed: Mapping[int, int], known: list[int], floor: Floor, rising: list[int]
) -> float:
    """Return the constant of the line through the last probes, moved to within the floor."""
    smallest, last = probed[min(probed)], known[-1]
    if len(known) == 1:
        return min(max(floor.low, smallest - floor.slack), smallest)
    ends = rising if len(rising) > 1 else known[-2:]
    secants = [(probed[b] - probed[a]) / (b - a) for a, b in itertools.pairwise(ends)]
    slope = max(0.0, *secants)
    if slope == 0.0:
        return probed[last]
    low = max(floor.low, smallest - floor.slack - slope)
    high = max(low, min(floor.high, smallest))
    if len(rising) == 1:
        return low
    return min(max(probed[last] - slope * last, low), high)


def usable(limit: int, margin: float = MARGIN) -> int:
    """Return what of a limit a plan may use, in bytes."""
    return int(limit * (1 - margin))


def search(probe: Probe, largest: int, limit: int | None, *, doubt: float = 0.0) -> dict[int, int]:
    """Measure sizes 1, 2, 4, ... and `largest`, as long as the next is expected to fit.

    The first two sizes behind a flat may lie on either side of the bend, and then tell a slope that
    is too small. Three quarters of each are measured, too, and seven eighths where these are still
    on the flat: a size that is above it is on the line.

    Args:
        probe: what measures.
        largest: where to end.
        limit: bytes; None for none.
        doubt: how far above the limit, in parts of it, an expected peak is measured all the same.

    Returns:
        Peaks in bytes by size, without those that ran out of memory. The last one may turn out
        not to fit.
    """
    probed: dict[int, int] = {}
    size = 1
    while True:
        expected = predict(probed, size, probe.floor) if probed else None
        if limit is not None and expected is not None and expected > limit * (1 + doubt):
            return probed
        try:
            probed[size] = probe.peak(size)
            if limit is not None and probed[size] > limit:
                return probed
            _probe_bend(probe, probed, size)
        except ResourceError:
            return probed
        if size == largest:
            return probed
        size = min(2 * size, largest)


def _probe_bend(probe: Probe, probed: dict[int, int], size: int) -> None:
    """Measure sizes below one that is above a flat, until one of them is above it, too."""
    level = _level(probed, size)
    if level is None or probed[size] <= level + _NOISE_BYTES:
        return
    for eighths in (6, 7):
        between = size * eighths // 8
        if 8 * between == eighths * size:
            probed[between] = probe.peak(between)
            if probed[between] > level + _NOISE_BYTES:
                return


def choose(probed: Mapping[int, int], floor: Floor, limit: int | None) -> MicroBatchPlan | None:
    """Return the plan with the largest size that was measured to fit; None if there is none.

    Args:
        probed: peaks in bytes by size.
        floor: see `predict`.
        limit: bytes; None for none.
    """
    sizes = [size for size, peak in probed.items() if limit is None or peak <= limit]
    if not sizes:
        return None
    size = max(sizes)
    return MicroBatchPlan(size, predict(probed, size, floor), probed[size])


def largest_that_fits(probed: Mapping[int, int], floor: Floor, limit: int) -> int:
    """Return the largest size expected to stay within a limit; 0 if none does.

    Up to the largest probe, sizes are judged by the probes; beyond, by what these predict, with a
    margin.
    """
    fitting = [size for size, peak in probed.items() if peak <= limit]
    best = max(fitting, default=0)
    if best != max(probed, default=0):
        return best
    low, high = best, 2 * best
    while (predict(probed, high, floor) or 0) <= usable(limit) and high < 1 << 30:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        inside = (_between(probed, middle, floor)) <= usable(limit)
        low, high = (middle, high) if inside else (low, middle)
    return low


def _between(probed: Mapping[int, int], size: int, floor: Floor) -> float:
    """Return the peak expected at a size above the largest probe, from that one and its half."""
    last = max(probed)
    twice = predict(probed, 2 * last, floor) or 0
    return probed[last] + (twice - probed[last]) * (size - last) / last


def cannot_fit(
    limit: int, needed: int, memory_savings: Mapping[str, int], margin: float = MARGIN
) -> ResourceError:
    """Return the error for a limit that no micro-batch fits.

    Args:
        limit: bytes.
        needed: bytes that a micro-batch of one example takes, at least.
        memory_savings: what could be done, with the bytes that it would save, about.
        margin: part of the limit that stays free.
    """
    saves = [
        f"{name} (saves about {saved / 1e6:.1f} MB)"
        for name, saved in sorted(memory_savings.items(), key=lambda item: -item[1])
        if saved > 0
    ]
    enough = -(-needed // (1 - margin)) / 1e6
    hints = [*saves, f"training.memory_limit: {enough + 0.1:.1f}MB"]
    return ResourceError(
        f"even a micro-batch of one example needs {needed / 1e6:.1f} MB, and the limit is "
        f"{limit / 1e6:.1f} MB" + (f", of which {margin:.0%} stays free" if margin else ""),
        subject="training.memory_limit",
        hint="; ".join(hints),
    )
