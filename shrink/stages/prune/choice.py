"""Which channels to keep, by the importance that the recipe names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from shrink.data.splits import stratified_sample
from shrink.graph.groups import ChannelGraph, Group
from shrink.graph.rebuild import Weights, rebuild, weights_of
from shrink.pruning.allocation import Counts
from shrink.pruning.importance import IMPORTANCES, Evidence, activity, least_important
from shrink.pruning.reconstruct import least_squares
from shrink.stages.context import StageContext
from shrink.stages.prune.config import PruneConfig

_BATCH = 25


def mean_gradients(graph: ChannelGraph, count: int, context: StageContext) -> Callable[[], Weights]:
    """Return a function that computes the gradients at its first call.

    Args:
        count: examples of the training split to average over.
    """
    return functools.cache(lambda: _gradients(graph, count, context))


def _gradients(graph: ChannelGraph, count: int, context: StageContext) -> Weights:
    model = rebuild(graph, graph.keep(np.array([])), weights_of(graph))
    task = context.task(model)
    objective = task.objective()
    examples = context.dataset.train
    count = min(count, len(examples))
    chosen = stratified_sample(examples.labels, len(examples), count, context.training.seed)
    variables = model.trainable_variables
    total = [np.zeros(v.shape, np.float64) for v in variables]
    for start in range(0, count, _BATCH):
        x, y = examples.arrays(chosen[start : start + _BATCH])
        x = tf.nest.map_structure(lambda part: tf.cast(part, model.compute_dtype), x)
        with tf.GradientTape() as tape:
            outputs = model(x, training=False)
            loss = tf.reduce_sum(
                objective.loss(tf.nest.map_structure(tf.constant, y), outputs, None)
            )
        found = tape.gradient(loss, variables, unconnected_gradients="zero")
        total = [t + np.asarray(tf.convert_to_tensor(g)) for t, g in zip(total, found, strict=True)]
    by_id = {id(v): t / count for v, t in zip(variables, total, strict=True)}
    return {
        name: [by_id.get(id(w), np.zeros(w.shape)) for w in model.get_layer(name).weights]
        for name in graph.layers
    }


@dataclass(frozen=True)
class Chosen:
    """Which channels go, and all weights at full size, solved again where that was asked for."""

    removed: np.ndarray
    weights: Weights
    notes: tuple[str, ...] = ()


def choose(
    graph: ChannelGraph, counts: Counts, config: PruneConfig, context: StageContext
) -> Chosen:
    """Return the channels of least importance, so many of each group."""
    weights, seed = weights_of(graph), context.training.seed
    if config.importance == "least_squares":
        found = least_squares(graph, counts, weights, sample(context, config.samples), seed)
        ranked = ", ".join(found.ranked)
        note = f"no layer to solve for reads {ranked}: pruned by L2 norm instead"
        return Chosen(found.removed, found.weights, (note,) if ranked else ())
    score = scorer(graph, config, context)
    parts = [
        least_important(group, score(group), count)
        for group, count in zip(graph.groups, counts, strict=True)
        if count
    ]
    return Chosen(np.concatenate([np.array([], np.int64), *parts]), weights)


def scorer(
    graph: ChannelGraph, config: PruneConfig, context: StageContext
) -> Callable[[Group], np.ndarray]:
    """Return the recipe's importance: from a group to float64 (channels,)."""
    evidence = Evidence(
        weights_of(graph),
        mean_gradients(graph, config.samples, context),
        activity(graph, lambda: sample(context, config.samples)),
        context.training.seed,
    )
    importance = IMPORTANCES[config.importance]
    return lambda group: importance(group, evidence)


def sample(context: StageContext, count: int) -> list[np.ndarray]:
    """Return training examples, stratified, one array (n, ...) per input in its stored dtype."""
    examples = context.dataset.train
    chosen = stratified_sample(
        examples.labels, len(examples), min(count, len(examples)), context.training.seed
    )
    return [np.asarray(part) for part in tf.nest.flatten(examples.arrays(chosen)[0])]
