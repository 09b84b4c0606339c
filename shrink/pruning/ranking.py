"""Sharing by one ranking of all channels: the lowest scores go, in whichever group they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shrink.graph.groups import Group
from shrink.pruning.allocation import Allocate, Counts, removed_count

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
