"""How large the weights of each channel of a group are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shrink.graph.groups import Group, Member
from shrink.graph.rebuild import Weights


def over_kernels(
    group: Group, weights: Weights, size: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return each channel's sum of `size` over all kernel slices that make or read it.

    Each kernel's sums are divided by their mean over the group's channels, so that no kernel
    counts more for being larger.

    Args:
        group: the channels.
        weights: of every layer.
        size: element by element, such as the square.

    Returns:
        float64 (channels,).
    """
    total = np.zeros(len(group))
    for member in group.members:
        if member.role in ("output", "input"):
            norms = slices(member, size(weight_of(member, weights)), np.sum)
            total += norms / (norms.mean() or 1.0)
    return total


def weight_of(member: Member, weights: Weights) -> np.ndarray:
    """Return the weight that a member is an axis of, float64."""
    return np.asarray(weights[member.layer][member.weight], np.float64)


def slices(
    member: Member, array: np.ndarray, reduce: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return one number per channel: `reduce` of the array at the channel's positions."""
    return np.array(
        [float(reduce(np.take(array, p, axis=member.axis))) for p in member.positions], np.float64
    )
