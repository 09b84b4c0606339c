"""Which channels are removed, and how pruning is divided among the groups.

For `allocation: sensitivity` each group is pruned alone, by the recipe's importance and without
fine-tuning (Li et al. 2017, "Pruning Filters for Efficient ConvNets", fig. 2). The curves of the
loss then decide how many channels each group loses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.packages import versions
from shrink.data.examples import Batch, Examples
from shrink.data.splits import stratified_sample
from shrink.engine.objective import Objective
from shrink.graph.groups import ChannelGraph, Group
from shrink.graph.rebuild import Weights, rebuild, weights_of
from shrink.pruning.allocation import Allocate, Cost, Counts, removed_count, uniform
from shrink.pruning.importance import (
    IMPORTANCES,
    Curve,
    Evidence,
    cached_curves,
    least_important,
)
from shrink.pruning.reconstruct import least_squares
from shrink.stages.context import StageContext
from shrink.stages.distill.teacher_cache import model_digest
from shrink.stages.prune.config import PruneConfig

_GRADIENT_BATCH = 25


def mean_gradients(graph: ChannelGraph, count: int, context: StageContext) -> Callable[[], Weights]:
    """Return a function that averages gradients over `count` training examples, once."""
    return functools.cache(lambda: _gradients(graph, count, context))


def _gradients(graph: ChannelGraph, count: int, context: StageContext) -> Weights:
    model = rebuild(graph, graph.keep(np.array([])), weights_of(graph))
    model.trainable = True  # channels of frozen layers have an importance, too
    task = context.task(model)
    objective = task.objective()
    examples = context.dataset.train
    chosen = _chosen(examples, count, context)
    count = len(chosen)
    variables = model.trainable_variables
    total = [np.zeros(v.shape, np.float64) for v in variables]
    for x, y in _batches(examples, chosen, _GRADIENT_BATCH, model):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(objective.loss(y, model(x, training=False), None))
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        total = [
            t + np.asarray(tf.convert_to_tensor(g)) for t, g in zip(total, gradients, strict=True)
        ]
    by_id = {id(v): t / count for v, t in zip(variables, total, strict=True)}
    return {
        name: [by_id.get(id(w), np.zeros(w.shape)) for w in model.get_layer(name).weights]
        for name in graph.layers
    }


@dataclass(frozen=True)
class Chosen:
    """The labels of the channels to remove, and all weights at full size (solved again or not)."""

    removed: np.ndarray
    weights: Weights
    notes: tuple[str, ...] = ()


def choose(
    graph: ChannelGraph, counts: Counts, config: PruneConfig, context: StageContext
) -> Chosen:
    """Return the `counts` least important channels of each group."""
    weights, seed = weights_of(graph), context.training.seed
    if config.importance == "least_squares":
        solution = least_squares(graph, counts, weights, sample(context, config.samples), seed)
        ranked = ", ".join(solution.ranked)
        note = f"pruned by L2 norm, as no layer that can be solved reads them: {ranked}"
        return Chosen(solution.removed, solution.weights, (note,) if ranked else ())
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
        context.training.seed,
    )
    importance = IMPORTANCES[config.importance]
    return lambda group: importance(group, evidence)


def sample(context: StageContext, count: int) -> list[np.ndarray]:
    """Return training examples, stratified, one array (n, ...) per input in its stored dtype."""
    examples = context.dataset.train
    chosen = _chosen(examples, count, context)
    return [np.asarray(part) for part in tf.nest.flatten(examples.arrays(chosen)[0])]


def _chosen(examples: Examples, count: int, context: StageContext) -> np.ndarray:
    """Return at most so many indices, int64 (n,), stratified."""
    count = min(count, len(examples))
    return stratified_sample(examples.labels, len(examples), count, context.training.seed)


def _batches(
    examples: Examples, chosen: np.ndarray, size: int, model: keras.Model
) -> Iterator[Batch]:
    """Yield batches of tensors, the inputs in the model's compute dtype."""
    for start in range(0, len(chosen), size):
        x, y = examples.arrays(chosen[start : start + size])
        x = tf.nest.map_structure(lambda array: tf.cast(array, model.compute_dtype), x)
        yield x, tf.nest.map_structure(tf.constant, y)


_RATIOS = (0.25, 0.5, 0.75, 1.0)
_EXAMPLES, _LOSS_BATCH = 1000, 100
_VERSION = 2
"""Raised when the same settings give other curves."""
_LEAST, _MOST_COUNTS = 0.01, 129
_IDENTITY_KEYS = ("importance", "samples", "exclude")


def measure_sensitivity(
    graph: ChannelGraph, config: PruneConfig, context: StageContext
) -> tuple[list[Curve], bool]:
    """Return the loss curve of each group, and whether they come from the cache.

    Empty unless the allocation is `sensitivity`.
    """
    if config.allocation != "sensitivity":
        return [], False
    full = rebuild(graph, graph.keep(np.array([])), weights_of(graph))

    def measure() -> list[Curve]:
        context.phase("measuring sensitivity")
        unpruned = validation_loss(full, context)
        curves = list[Curve]()
        for number, group in enumerate(graph.groups):
            context.phase("measuring sensitivity, groups", number, len(graph.groups))
            curves.append(_curve(number, group, unpruned, graph, config, context))
        return curves

    return cached_curves(context.sensitivities, _identity(full, config, context), measure)


def _identity(model: keras.Model, config: PruneConfig, context: StageContext) -> dict[str, object]:
    """Return the cache key of the curves, as plain data."""
    return {
        "version": _VERSION,
        "model": model_digest(model),
        "code": context.code_of("model"),
        "prune": {key: getattr(config, key) for key in _IDENTITY_KEYS},
        "tried": [*_RATIOS, _EXAMPLES],
        "seed": context.training.seed,
        **context.task_identity(),
        **context.data_identity(),
        "versions": versions(),
    }


def allocator(graph: ChannelGraph, curves: Sequence[Curve], cost: Cost, round_to: int) -> Allocate:
    """Return how pruning is divided among the groups: by their loss curves, or evenly without any.

    By Lagrange multipliers (Everett 1963, "Generalized Lagrange Multiplier Method"): at a price p
    each group removes the channels that minimize loss - p * saving. If the losses of the groups
    add up, no other division saves as much at a lower loss. The extent t of the allocation is the
    price t / (1 - t), in units of the median price at which groups lose half of their channels.

    Args:
        cost: the figure to be reduced.
        round_to: the channels that stay are a multiple of this.
    """
    if not curves:
        return uniform(graph.groups, round_to)
    unpruned = cost(graph.keep(np.array([])))
    tables, prices_of_half = list[tuple[np.ndarray, np.ndarray, np.ndarray]](), list[float]()
    for group, curve in zip(graph.groups, curves, strict=True):
        ratios = np.linspace(0, 1, min(len(group), _MOST_COUNTS))
        counts = np.unique([removed_count(len(group), ratio, round_to) for ratio in ratios])
        left = [cost(graph.keep(group.channels[:count])) for count in counts]
        savings = unpruned - np.array(left, float)
        losses = _convex(savings, curve.losses_at(counts))
        half = savings[-1] / 2
        rise = float(np.interp(half, savings, losses) - losses[0])
        prices_of_half.append(rise / half if half else 0.0)
        tables.append((counts, savings, losses))
    unit = max(float(np.median(prices_of_half)), 1e-12)
    for _, savings, losses in tables:
        # Channels that cost no loss go one by one as the price rises, not all at once.
        losses += _LEAST * unit * savings**2 / max(savings[-1], 1e-12)

    def allocate(extent: float) -> Counts:
        if extent == 1:
            return [int(counts[-1]) for counts, _, _ in tables]
        price = unit * extent / (1 - extent)
        return [
            int(counts[np.argmin(losses - price * savings)]) for counts, savings, losses in tables
        ]

    return allocate


def _convex(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the greatest convex function below `y` (n,) at rising `x` (n,).

    Without it, a loss that rises fast and then stays flat has no price between removing nothing
    and removing everything, and a budget would be missed by a whole group.
    """
    hull: list[int] = []
    for n in range(len(x)):
        while len(hull) > 1 and _slope(x, y, hull[-2], hull[-1]) >= _slope(x, y, hull[-1], n):
            hull.pop()
        hull.append(n)
    return np.interp(x, x[hull], y[hull])


def _slope(x: np.ndarray, y: np.ndarray, a: int, b: int) -> float:
    return float((y[b] - y[a]) / max(x[b] - x[a], 1e-300))


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
            losses.append(validation_loss(pruned, context))
    return Curve("+".join(group.layers), len(group), tuple(ratios), tuple(losses))


def validation_loss(model: keras.Model, context: StageContext) -> float:
    """Return the mean loss on validation examples, stratified."""
    return float(np.mean(validation_losses(model, context.task(model).objective(), context)))


def validation_losses(
    model: keras.Model, objective: Objective, context: StageContext
) -> np.ndarray:
    """Return the loss on the labels of each validation example, stratified, float64 (n,)."""
    examples = context.dataset.validation
    batches = _batches(examples, _chosen(examples, _EXAMPLES, context), _LOSS_BATCH, model)
    losses = [objective.validation_loss(y, model(x, training=False)) for x, y in batches]
    return np.concatenate(losses, dtype=np.float64)
