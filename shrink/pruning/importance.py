"""Importance of channels: from a group to one score per channel; the lowest go first.

Add an importance as a function and one line in the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from shrink.base.errors import StageError
from shrink.graph.groups import Group, Member
from shrink.graph.norms import over_kernels, slices, weight_of
from shrink.graph.rebuild import Weights
from shrink.pruning.activations import Activity


@dataclass(frozen=True)
class Evidence:
    """What scores are made from.

    Attributes:
        weights: of every layer.
        gradients: of the mean loss on training examples, like the weights; computed when asked.
        activity: of what layers are given, by their name; measured when asked.
        seed: decides what is random.
    """

    weights: Weights
    gradients: Callable[[], Weights]
    activity: Callable[[], Mapping[str, Activity]]
    seed: int = 0


Importance = Callable[[Group, Evidence], np.ndarray]
"""A group and the evidence to float64 (channels,)."""


def l2(group: Group, evidence: Evidence) -> np.ndarray:
    """Return the L2 norm of all kernel slices that make or read a channel.

    Each kernel's squared norms are divided by their mean over the group's channels, so that no
    kernel counts more for being larger (the group L2 of DepGraph, Fang et al. 2023, eq. 6).
    """
    return np.sqrt(over_kernels(group, evidence.weights, np.square))


def l1(group: Group, evidence: Evidence) -> np.ndarray:
    """Return the L1 norm of the same slices, normalised alike (Li et al. 2017)."""
    return over_kernels(group, evidence.weights, np.abs)


def lamp(group: Group, evidence: Evidence) -> np.ndarray:
    """Return each squared L2 norm, as in `l2`, over the sum of those that are not smaller.

    Lee et al. 2021, "Layer-adaptive Sparsity for the Magnitude-based Pruning", eq. 1, with channels
    in place of weights: what removing a channel costs of what would be left, so that scores of
    different groups compare. Within a group the order is that of `l2`.
    """
    squared = over_kernels(group, evidence.weights, np.square)
    order = np.argsort(squared, kind="stable")
    left = np.cumsum(squared[order][::-1])[::-1]
    scores = np.empty(len(group))
    scores[order] = squared[order] / np.maximum(left, np.finfo(np.float64).tiny)
    return scores


def bn_scale(group: Group, evidence: Evidence) -> np.ndarray:
    """Return the sum of |gamma| over batch norms (Liu et al. 2017, "Network Slimming").

    Raises:
        StageError: no batch norm with a scale follows the group.
    """
    found = [m for m in group.members if m.role == "scale"]
    if not found:
        raise StageError(
            "no batch norm with a scale follows its channels, which bn_scale needs",
            subject=group.name,
            hint=f"exclude {group.name}, or take importance: l2",
        )
    return _total(found, lambda m: np.abs(weight_of(m, evidence.weights)))


def taylor(group: Group, evidence: Evidence) -> np.ndarray:
    """Return the squared first-order change of the loss without a channel.

    (sum of gradient x weight over a channel's weights)², Molchanov et al. 2019, "Importance
    Estimation for Neural Network Pruning", eq. 8, summed over the layers that make it.
    """
    gradients = evidence.gradients()
    makers = [m for m in group.members if m.role == "output"]
    each = [
        slices(m, weight_of(m, evidence.weights) * weight_of(m, gradients), np.sum) for m in makers
    ]
    return np.sum(np.square(each), axis=0)


def apoz(group: Group, evidence: Evidence) -> np.ndarray:
    """Return 1 - APoZ: how often a channel is not zero where layers read it, their mean.

    Average percentage of zeros, Hu et al. 2016, "Network Trimming", eq. 1. Zeros come from ReLU: of
    other activations none is exactly zero.

    Raises:
        StageError: no layer reads the group from the last axis of its one input.
    """
    return _over_readers(group, evidence, lambda activity: activity.nonzero)


def mean_activation(group: Group, evidence: Evidence) -> np.ndarray:
    """Return a channel's mean absolute value where layers read it, their mean.

    Molchanov et al. 2017, "Pruning Convolutional Neural Networks for Resource Efficient Inference",
    section 2.2, for activations of any sign.

    Raises:
        StageError: no layer reads the group from the last axis of its one input.
    """
    return _over_readers(group, evidence, lambda activity: activity.magnitude)


def random(group: Group, evidence: Evidence) -> np.ndarray:
    """Return random scores: what every other importance has to beat."""
    entropy = [evidence.seed, *map(ord, group.name)]
    return np.random.default_rng(entropy).random(len(group))


IMPORTANCES: Mapping[str, Importance] = {
    "l2": l2,
    "l1": l1,
    "lamp": lamp,
    "bn_scale": bn_scale,
    "taylor": taylor,
    "apoz": apoz,
    "mean_activation": mean_activation,
    "random": random,
}
"""Every importance that scores channels; least_squares chooses and solves in one."""


def least_important(group: Group, scores: np.ndarray, count: int) -> np.ndarray:
    """Return the `count` channels of lowest score; the first of equals go first."""
    return group.channels[np.argsort(scores, kind="stable")[:count]]


def _total(members: list[Member], value: Callable[[Member], np.ndarray]) -> np.ndarray:
    return np.sum([slices(m, value(m), np.sum) for m in members], axis=0)


def _over_readers(
    group: Group, evidence: Evidence, value: Callable[[Activity], np.ndarray]
) -> np.ndarray:
    known = evidence.activity()
    readers = [m for m in group.members if m.role == "input" and m.layer in known]
    if not readers:
        raise StageError(
            "no layer reads its channels from the last axis of its one input",
            subject=group.name,
            hint=f"exclude {group.name}, or take importance: l2",
        )
    parts = [
        [np.mean(value(known[m.layer])[places]) if places.size else 0.0 for places in m.positions]
        for m in readers
    ]
    return np.mean(parts, axis=0)
