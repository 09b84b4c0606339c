"""How many channels each group keeps, by ratio or by budget.

Arithmetic over the groups knows how a figure falls, and not what else is in it: attention products,
layers that are wrapped, a file's tables. So the figure itself is measured of models that are built,
and what arithmetic misses is taken to change evenly between two of them.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
        raise _out_of_reach(name, f"{budget:,.6g}", f"{left(1.0):,.6g}")
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


_BY_GROUP_MEAN = {"l1", "l2", "mean_activation"}
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


Measure = Callable[[np.ndarray], float]
"""From what stays, by label, to the figure of the model that is left."""

CLOSE = 0.98
"""From this part of a budget on, no more is given back."""
_MEASUREMENTS = 12


@dataclass(frozen=True)
class Fit:
    """The least pruning that was found.

    Attributes:
        counts: channels to remove from each group; none where the budget is met as it is.
        before: the unpruned model's figure.
        after: that of a model with so many channels fewer.
        measurements: models that were built and measured.
    """

    counts: Counts
    before: float
    after: float
    measurements: int


@dataclass(frozen=True)
class _Point:
    extent: float
    counts: Counts
    planned: float
    figure: float


def by_figure(
    graph: ChannelGraph,
    name: str,
    limit: float,
    allocate: Allocate,
    measure: Measure,
    planned: Cost,
) -> Fit:
    """Return the least pruning with which a measured figure is at most `limit`.

    Args:
        graph: the model's groups.
        name: of the budget, for errors.
        limit: the most that may be left.
        allocate: which groups lose how many.
        measure: the figure itself; called for a dozen models at most.
        planned: what arithmetic makes of it; its differences matter, not its height.

    Raises:
        StageError: as few channels as can be are still too many; the message says what is left.
    """
    search = _Search(graph, name, limit, measure, planned)
    unpruned = search.at(0.0, allocate)
    if unpruned.figure <= limit:
        return Fit(unpruned.counts, unpruned.figure, unpruned.figure, search.measurements)
    low, high = search.between(allocate, unpruned, None)
    if high.figure < CLOSE * limit:
        # Groups of one size lose a channel at once: some of them may keep it.
        _, high = search.between(
            _one_by_one(low.counts, high.counts), _at(low, 0.0), _at(high, 1.0)
        )
    return Fit(high.counts, unpruned.figure, high.figure, search.measurements)


class _Search:
    """Measures models between one that is too much and one that fits."""

    def __init__(
        self, graph: ChannelGraph, name: str, limit: float, measure: Measure, planned: Cost
    ) -> None:
        self._graph = graph
        self._name = name
        self._limit = limit
        self._measure = measure
        self._planned = planned
        self._known: dict[tuple[int, ...], float] = {}
        self._exact = False  # whether arithmetic foresaw the figure measured last

    @property
    def measurements(self) -> int:
        """Models that were built and measured."""
        return len(self._known)

    def at(self, extent: float, allocate: Allocate) -> _Point:
        """Return the point at an extent, measured where it was not before."""
        counts = allocate(extent)
        keep = self._keep(counts)
        if tuple(counts) not in self._known:
            self._known[tuple(counts)] = self._measure(keep)
        return _Point(extent, counts, self._planned(keep), self._known[tuple(counts)])

    def between(
        self, allocate: Allocate, low: _Point, high: _Point | None
    ) -> tuple[_Point, _Point]:
        """Return neighbours, or nearly so: the first does not fit, the second does."""
        crept = False
        while high is None or high.figure < CLOSE * self._limit:
            extent = None
            if self.measurements < _MEASUREMENTS:
                extent, crept = self._next(allocate, low, high, crept)
            elif high is None:
                extent = 1.0
            if extent is None:
                break
            point = self.at(extent, allocate)
            self._exact = point.figure == point.planned + _missed(point.planned, low, high)
            if point.figure <= self._limit:
                high = point
            elif extent == 1.0:
                raise self._out_of_reach(point.figure)
            else:
                low = point
        if high is None:
            raise self._out_of_reach(self.at(1.0, allocate).figure)
        neighbour = _neighbour(allocate, low, high) if self._exact else None
        return (low if neighbour is None else self._foreseen(neighbour, allocate, low)), high

    def _next(
        self, allocate: Allocate, low: _Point, high: _Point | None, crept: bool
    ) -> tuple[float | None, bool]:
        """Return the extent to measure next, None where there is none, and whether it creeps."""
        known = [point.counts for point in (low, high) if point is not None]
        likely = self._likely(allocate, low, high)
        if high is None or allocate(likely) not in known:
            return likely, False
        if self._exact:
            return None, False
        if crept:
            return _middle(allocate, low, high), False
        return _neighbour(allocate, low, high), True

    def _likely(self, allocate: Allocate, low: _Point, high: _Point | None) -> float:
        """Return the least extent that fits if what arithmetic misses changes evenly."""

        def fits(extent: float) -> bool:
            planned = self._planned(self._keep(allocate(extent)))
            return planned + _missed(planned, low, high) <= self._limit

        a, b = low.extent, 1.0 if high is None else high.extent
        if not fits(b):
            return b
        for _ in range(_HALVINGS):
            middle = (a + b) / 2
            a, b = (a, middle) if fits(middle) else (middle, b)
        return b

    def _foreseen(self, extent: float, allocate: Allocate, known: _Point) -> _Point:
        counts = allocate(extent)
        planned = self._planned(self._keep(counts))
        return _Point(extent, counts, planned, planned + _missed(planned, known, None))

    def _keep(self, counts: Counts) -> np.ndarray:
        return self._graph.keep(any_channels(self._graph, counts))

    def _out_of_reach(self, left: float) -> StageError:
        return _out_of_reach(self._name, f"{self._limit:,.0f}", f"{left:,.0f}")


def _out_of_reach(name: str, limit: str, left: str) -> StageError:
    return StageError(
        f"{name}: {limit} is out of reach: with as few channels as can be in every group {left} "
        "are left",
        subject="prune",
        hint="raise the budget, lower round_to, or exclude fewer layers",
    )


def _missed(planned: float, low: _Point, high: _Point | None) -> float:
    """Return what a figure has beyond what was planned, between two that are known."""
    missed = low.figure - low.planned
    if high is None or high.planned == low.planned:
        return missed
    share = (planned - low.planned) / (high.planned - low.planned)
    return missed + share * (high.figure - high.planned - missed)


def _middle(allocate: Allocate, low: _Point, high: _Point) -> float | None:
    """Return an extent whose counts are neither of both, None where there is none."""
    a, b = low.extent, high.extent
    for _ in range(_HALVINGS):
        middle = (a + b) / 2
        counts = allocate(middle)
        if counts not in (low.counts, high.counts):
            return middle
        a, b = (middle, b) if counts == low.counts else (a, middle)
    return None


def _neighbour(allocate: Allocate, low: _Point, high: _Point) -> float | None:
    """Return the largest extent of other counts below `high`, None where `low` is it."""
    a, b = low.extent, high.extent
    for _ in range(_HALVINGS):
        middle = (a + b) / 2
        a, b = (a, middle) if allocate(middle) == high.counts else (middle, b)
    return None if allocate(a) == low.counts else a


def _one_by_one(low: Counts, high: Counts) -> Allocate:
    """Return the allocation that goes from one to the other, group by group."""
    differing = [n for n, pair in enumerate(zip(low, high, strict=True)) if pair[0] != pair[1]]

    def allocate(extent: float) -> Counts:
        changed = set(differing[: round(extent * len(differing))])
        return [high[n] if n in changed else low[n] for n in range(len(low))]

    return allocate


def _at(point: _Point, extent: float) -> _Point:
    return _Point(extent, point.counts, point.planned, point.figure)
