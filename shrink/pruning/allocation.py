"""How many channels each group loses: by one ratio, by several, or to fit a budget."""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shrink.base.errors import RecipeError, StageError
from shrink.graph.groups import ChannelGraph, Group

Counts = list[int]
"""Channels to remove from each group, in the order of the groups."""
Cost = Callable[[np.ndarray], float]
"""What is left, by the labels that stay; it falls as channels go."""
Allocate = Callable[[float], Counts]
"""From how far pruning goes, 0 not at all and 1 to one channel per group, to its counts."""

_HALVINGS = 40


def removed_count(size: int, ratio: float, round_to: int = 1) -> int:
    """Return how many of `size` channels go: at most `ratio` of them, never the last.

    Args:
        round_to: what stays is a multiple of this; where that is not less than `size`, all stays.
    """
    # A ratio such as 0.3 of 10 is 3, although 0.3 * 10 may come out just below it.
    kept = max(1, size - math.floor(ratio * size + 1e-9))
    kept = math.ceil(kept / round_to) * round_to
    return max(0, size - kept)


def by_ratio(groups: Sequence[Group], ratio: float, round_to: int = 1) -> Counts:
    """Return the same fraction of every group."""
    return [removed_count(len(group), ratio, round_to) for group in groups]


def by_ratios(
    groups: Sequence[Group], ratios: Mapping[str, float], default: float, round_to: int = 1
) -> Counts:
    """Return each group's own fraction: the first pattern that fits one of its layers decides.

    Raises:
        RecipeError: a pattern that fits no layer of any group.
    """
    for pattern in ratios:
        if not any(_fits(group, pattern) for group in groups):
            names = ", ".join("+".join(group.layers) for group in groups)
            raise RecipeError(
                f"prune.ratios: {pattern!r} fits no layer whose channels can be pruned",
                subject="prune.ratios",
                hint=f"there are {names or 'none'}",
            )
    chosen = [
        next((r for pattern, r in ratios.items() if _fits(group, pattern)), default)
        for group in groups
    ]
    return [removed_count(len(g), r, round_to) for g, r in zip(groups, chosen, strict=True)]


def uniform(groups: Sequence[Group], round_to: int = 1) -> Allocate:
    """Return the allocation that takes the same fraction of every group."""
    return lambda extent: by_ratio(groups, extent, round_to)


def by_budget(
    graph: ChannelGraph, cost: Cost, budget: float, name: str, allocate: Allocate
) -> Counts:
    """Return the least pruning with which a cost fits its budget.

    Args:
        cost: what must become at most `budget`.
        name: of the budget, for errors.
        allocate: which groups lose how many, `uniform(graph.groups)` or another.

    Raises:
        StageError: one channel in each group is still too many; the message says what is left.
    """

    def left(extent: float) -> float:
        return cost(graph.keep(any_channels(graph, allocate(extent))))

    if left(1.0) > budget:
        raise StageError(
            f"{name}: {budget:,.6g} is out of reach: with as few channels as can be in every group "
            f"{left(1.0):,.6g} are left",
            subject="prune",
            hint="raise the budget, lower round_to, or exclude fewer layers",
        )
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if left(middle) <= budget else (middle, high)
    return allocate(high) if left(0.0) > budget else allocate(0.0)


def in_rounds(counts: Counts, rounds: int) -> list[Counts]:
    """Return the counts of each round; together they are `counts`, and as even as can be."""
    until = [[count * n // rounds for count in counts] for n in range(rounds + 1)]
    return [[b - a for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(until)]


def any_channels(graph: ChannelGraph, counts: Counts) -> np.ndarray:
    """Return so many channels of each group, whichever: which ones hardly matters to the cost."""
    parts = [group.channels[:n] for group, n in zip(graph.groups, counts, strict=True)]
    return np.concatenate([np.array([], np.int64), *parts])


def _fits(group: Group, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in group.layers)
