"""How many channels each group keeps."""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from shrink.base import files
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


@dataclass(frozen=True)
class Curve:
    """What pruning one group does to the validation loss.

    Attributes:
        layers: of the group, joined by "+".
        channels: of the group.
        ratios: fractions of its channels that were removed, from 0 on.
        losses: the mean loss at each of them.
    """

    layers: str
    channels: int
    ratios: tuple[float, ...]
    losses: tuple[float, ...]

    def losses_at(self, counts: np.ndarray) -> np.ndarray:
        """Return the loss where so many channels (n,) are removed, interpolated (n,).

        A piecewise cubic, monotone as the points (Fritsch & Carlson 1980): prices then move a
        group by one channel, not from point to point. The loss is taken to rise, never to fall.
        """
        if len(self.ratios) == 1:
            return np.full(len(counts), self.losses[0])
        rising = np.maximum.accumulate(np.array(self.losses))
        found: np.ndarray = PchipInterpolator(self.ratios, rising)(counts / self.channels)
        return found


def remembered(
    folder: Path, identity: Mapping[str, Any], measure: Callable[[], Sequence[Curve]]
) -> tuple[list[Curve], bool]:
    """Return curves and whether they were there; else they are measured and written.

    A file that cannot be read, or is of something else, is measured again and replaced.

    Args:
        folder: of all such files; made where it is missing.
        identity: everything that decides the curves, plain data.
        measure: how to find them out.
    """
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    path = folder / f"{key}.json"
    known = _read(path, key)
    if known is not None:
        path.touch()  # used now: what was not for long is swept away
        return known, True
    curves = list(measure())
    body = [asdict(curve) for curve in curves]
    files.write_json(path, {"key": key, "digest": _digest(body), "curves": body})
    return curves, False


def _read(path: Path, key: str) -> list[Curve] | None:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        if entry["key"] != key or entry["digest"] != _digest(entry["curves"]):
            return None
        return [
            Curve(one["layers"], one["channels"], tuple(one["ratios"]), tuple(one["losses"]))
            for one in entry["curves"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


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
    places = [np.arange(len(one)) / len(one) for one in ranked if len(one)]
    order = owners[np.lexsort([_joined(places), _joined(ranked)])]

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
