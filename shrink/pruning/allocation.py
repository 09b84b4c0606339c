"""How many channels each group loses: by ratio, by score or by budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shrink.base.errors import RecipeError, StageError
from shrink.graph.groups import ChannelGraph, Group, matches

Counts = list[int]
"""Channels to remove from each group, in the order of the groups."""
Cost = Callable[[np.ndarray], float]
"""A figure of the pruned model, from the mask of channels that stay (`ChannelGraph.keep`)."""
Allocate = Callable[[float], Counts]
"""The counts at an extent of pruning: 0 removes nothing, 1 leaves one channel in every group."""

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
        if not any(matches(n, [pattern]) for group in groups for n in group.layers):
            names = ", ".join("+".join(group.layers) for group in groups)
            raise RecipeError(
                f"prune.ratios: {pattern!r} fits no layer whose channels can be pruned",
                subject="prune.ratios",
                hint=f"there are {names or 'none'}",
            )
    chosen = [
        next((r for p, r in ratios.items() for n in group.layers if matches(n, [p])), default)
        for group in groups
    ]
    return [removed_count(len(g), r, round_to) for g, r in zip(groups, chosen, strict=True)]


def uniform(groups: Sequence[Group], round_to: int = 1) -> Allocate:
    """Return the allocation that takes the same fraction of every group."""
    return lambda extent: by_ratio(groups, extent, round_to)


def by_budget(
    graph: ChannelGraph,
    cost: Cost,
    budget: float,
    name: str,
    allocate: Allocate,
    *,
    close: float = 1.0,
    most: float = math.inf,
) -> Counts:
    """Return the least pruning with which a cost is at most `budget`, by bisecting the extent.

    Args:
        cost: arithmetic, or the measured figure of a model that is built.
        name: of the budget, for errors.
        close: a cost of at least this fraction of the budget ends the search.
        most: how many costs to compute, about.

    Raises:
        StageError: one channel in each group is still too many; the message says what is left.
    """
    known = dict[tuple[int, ...], float]()

    def left(counts: Counts) -> float:
        key = tuple(counts)
        if key not in known:
            known[key] = cost(graph.keep(any_channels(graph, counts)))
        return known[key]

    def bisected(allocate: Allocate) -> tuple[Counts, Counts]:
        """Return the largest counts above the budget and the smallest within it."""
        low, high = 0.0, 1.0
        above, below = allocate(low), allocate(high)
        for _ in range(_HALVINGS):
            if left(below) >= close * budget or len(known) >= most:
                break
            middle = (low + high) / 2
            if left(counts := allocate(middle)) <= budget:
                high, below = middle, counts
            else:
                low, above = middle, counts
        return above, below

    if left(allocate(0.0)) <= budget:
        return allocate(0.0)
    if (least := left(allocate(1.0))) > budget:
        raise StageError(
            f"{name}: {budget:,.6g} is out of reach: with as few channels as possible in every "
            f"group {least:,.6g} are left",
            subject="prune",
            hint="raise the budget, lower round_to, or exclude fewer layers",
        )
    # Groups of one size lose a channel at the same extent: some of them may keep it.
    return bisected(_one_by_one(*bisected(allocate)))[1]


def _one_by_one(low: Counts, high: Counts) -> Allocate:
    """Return the allocation that changes from `low` to `high` group by group."""
    differing = [n for n, pair in enumerate(zip(low, high, strict=True)) if pair[0] != pair[1]]

    def allocate(extent: float) -> Counts:
        changed = set(differing[: round(extent * len(differing))])
        return [high[n] if n in changed else low[n] for n in range(len(low))]

    return allocate


def in_rounds(counts: Counts, rounds: int) -> list[Counts]:
    """Return the counts of each round; together they are `counts`, and as even as can be."""
    until = [[count * n // rounds for count in counts] for n in range(rounds + 1)]
    return [[b - a for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(until)]


def any_channels(graph: ChannelGraph, counts: Counts) -> np.ndarray:
    """Return so many channels of each group, whichever: which ones hardly matters to the cost."""
    parts = [group.channels[:n] for group, n in zip(graph.groups, counts, strict=True)]
    return np.concatenate([np.array([], np.int64), *parts])


_BY_GROUP_MEAN = {"l1", "l2"}
"""Importances whose scale depends on the layer: divided by their mean over the group, as
Torch-Pruning does. The others compare as they are."""


def comparable(scores: np.ndarray, importance: str) -> np.ndarray:
    """Return a group's scores (channels,) on a scale that all groups share."""
    if importance not in _BY_GROUP_MEAN:
        return scores
    return scores / (float(scores.mean()) or 1.0)


def by_ranking(groups: Sequence[Group], scores: Sequence[np.ndarray], round_to: int) -> Allocate:
    """Return the allocation that takes the fraction of all channels that has the lowest scores.

    The highest of each group stays. Of equal scores those go first that are lower within their
    group, so that no group goes before the others by its place.

    Args:
        scores: comparable ones, (channels,) for each group.
        round_to: of which the channels that stay are a multiple.
    """
    ranked = [np.sort(score)[:-1] for score in scores]
    owners = np.repeat(np.arange(len(groups)), [len(one) for one in ranked])
    relative_ranks = [np.arange(len(one)) / len(one) for one in ranked if len(one)]
    order = owners[np.lexsort([_joined(relative_ranks), _joined(ranked)])]

    def allocate(extent: float) -> Counts:
        lowest = order[: round(extent * len(order))]
        counts = np.bincount(lowest, minlength=len(groups))
        return [
            removed_count(len(group), count / len(group), round_to)
            for group, count in zip(groups, counts, strict=True)
        ]

    return allocate


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.array([]), *arrays])
