"""How much the validation loss minds when one group alone is pruned, and who shall lose how much.

Each group is pruned by itself, by the recipe's importance and without fine-tuning, as in Li et
al. 2017 ("Pruning Filters for Efficient ConvNets", fig. 2). Every group then loses as many
channels as cost it the same loss, the budget decides how much that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.data.splits import stratified_sample
from shrink.graph.groups import ChannelGraph, Group
from shrink.graph.rebuild import rebuild, weights_of
from shrink.stages.context import StageContext
from shrink.stages.prune.allocation import Allocate, Counts, removed_count, uniform
from shrink.stages.prune.choice import choose
from shrink.stages.prune.config import PruneConfig

_RATIOS = (0.25, 0.5, 0.75, 1.0)
_EXAMPLES, _BATCH = 1000, 100
_LEAST = 0.01


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

    def ratio_at(self, increase: float, least: float) -> float:
        """Return the largest fraction that raises the loss by at most `increase`, interpolated.

        Args:
            increase: of the loss, which is taken to rise, never to fall.
            least: what removing all channels costs at least, so that no step is for nothing.
        """
        rises = np.maximum.accumulate(np.array(self.losses) - self.losses[0])
        return float(np.interp(increase, rises + least * np.array(self.ratios), self.ratios))


def measure_sensitivity(
    graph: ChannelGraph, config: PruneConfig, context: StageContext
) -> list[Curve]:
    """Return the curve of each group, none where the allocation does not ask for them."""
    if config.allocation != "sensitivity":
        return []
    context.phase("measuring sensitivity")
    unpruned = _loss(rebuild(graph, graph.keep(np.array([])), weights_of(graph)), context)
    return [
        _curve(number, group, unpruned, graph, config, context)
        for number, group in enumerate(graph.groups)
    ]


def allocator(graph: ChannelGraph, curves: Sequence[Curve], round_to: int) -> Allocate:
    """Return how pruning is shared among the groups: by their curves, or alike without any.

    An extent t stands for the rise `t / (1 - t)` of the loss, in units of the median rise of a
    group that loses half of its channels.
    """
    if not curves:
        return uniform(graph.groups, round_to)
    halves = [float(np.interp(0.5, c.ratios, c.losses)) - c.losses[0] for c in curves]
    unit = max(float(np.median(halves)), 1e-9)

    def allocate(extent: float) -> Counts:
        rise = np.inf if extent == 1 else unit * extent / (1 - extent)
        return [
            removed_count(len(group), curve.ratio_at(rise, _LEAST * unit), round_to)
            for group, curve in zip(graph.groups, curves, strict=True)
        ]

    return allocate


def _curve(
    number: int,
    group: Group,
    unpruned: float,
    graph: ChannelGraph,
    config: PruneConfig,
    context: StageContext,
) -> Curve:
    ratios, losses = [0.0], [unpruned]
    for wanted in _RATIOS:
        counts = [0] * len(graph.groups)
        counts[number] = removed_count(len(group), wanted)
        ratio = counts[number] / len(group)
        if ratio > ratios[-1]:
            chosen = choose(graph, counts, config, context)
            pruned = rebuild(graph, graph.keep(chosen.removed), chosen.weights)
            ratios.append(ratio)
            losses.append(_loss(pruned, context))
    return Curve("+".join(group.layers), len(group), tuple(ratios), tuple(losses))


def _loss(model: keras.Model, context: StageContext) -> float:
    """Return the mean loss on validation examples, stratified."""
    examples, objective = context.dataset.validation, context.task(model).objective()
    count = min(_EXAMPLES, len(examples))
    chosen = stratified_sample(examples.labels, len(examples), count, context.training.seed)
    total = 0.0
    for start in range(0, count, _BATCH):
        x, y = examples.arrays(chosen[start : start + _BATCH])
        x = tf.nest.map_structure(lambda part: tf.cast(part, model.compute_dtype), x)
        y = tf.nest.map_structure(tf.constant, y)
        total += float(tf.reduce_sum(objective.loss(y, model(x, training=False), None)))
    return total / count
