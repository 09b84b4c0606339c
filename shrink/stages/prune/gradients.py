"""Gradients of the mean loss on training examples, for importances that ask for them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from shrink.data.splits import stratified_sample
from shrink.graph.groups import ChannelGraph
from shrink.graph.rebuild import Weights, rebuild, weights_of
from shrink.stages.context import StageContext

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
