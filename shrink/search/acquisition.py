"""What a point that was not trained promises, by what its cost is expected to be.

Costs are such that less is better, and normally distributed. Other figures are known exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

_STEADY = 1e-12
"""A standard deviation below this is none."""


def expected_improvement(level: float, mean: float, deviation: float) -> float:
    """Return by how much a cost is expected to fall below a level, at least 0.

    Jones et al. 1998, equation 15.
    """
    if deviation < _STEADY:
        return max(0.0, level - mean)
    z = (level - mean) / deviation
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return max(0.0, (level - mean) * _normal(z) + deviation * density)


def probability_within(limit: float, mean: float, deviation: float) -> float:
    """Return the probability that a cost is at most a limit."""
    if deviation < _STEADY:
        return float(mean <= limit)
    return _normal((limit - mean) / deviation)


def expected_hypervolume_gain(
    known: Sequence[float],
    mean: float,
    deviation: float,
    front: Sequence[tuple[Sequence[float], float]],
    reference: tuple[Sequence[float], float],
) -> float:
    """Return by how much a point is expected to enlarge the volume that is dominated.

    Only one cost is uncertain. Above each place of the known costs the volume grows by the part of
    that cost below the lowest of those that dominate the place, so that what is expected is the sum
    of expected improvements over the cells between the points, each times its size: the expected
    hypervolume improvement of Emmerich et al. 2011, in closed form.

    Args:
        known: costs of the point that are certain, (k,).
        mean: of the one that is not.
        deviation: of that.
        front: points that were trained, each with its k costs and the other one.
        reference: the worst costs that count.
    """
    ends, worst = reference
    if any(cost >= end for cost, end in zip(known, ends, strict=True)):
        return 0.0
    axes = [
        sorted({mine, *(min(max(other[0][axis], mine), end) for other in front), end})
        for axis, (mine, end) in enumerate(zip(known, ends, strict=True))
    ]
    gain = 0.0
    for cell in itertools.product(*(itertools.pairwise(axis) for axis in axes)):
        below = [low for low, _ in cell]
        beating = [
            cost
            for costs, cost in front
            if all(one <= low for one, low in zip(costs, below, strict=True))
        ]
        size = math.prod(high - low for low, high in cell)
        gain += size * expected_improvement(min([worst, *beating]), mean, deviation)
    return gain


def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))
