"""Settings that `prune` chooses when a recipe gives a budget and leaves them open.

Importance and allocation are tried: each combination meets the budget, and the one with the least
loss on validation examples, before fine-tuning, is taken. Teacher and learning rate follow fixed
rules, because trying them would mean fine-tuning several times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shrink.contract.choices import Choice, Option
from shrink.engine.config import OptimizerConfig, TrainingConfig
from shrink.graph.groups import ChannelGraph
from shrink.graph.rebuild import rebuild, weights_of
from shrink.pruning.allocation import Allocate, by_ranking, comparable
from shrink.pruning.importance import Curve
from shrink.stages.context import StageContext
from shrink.stages.prune.choice import (
    allocator,
    choose,
    measure_sensitivity,
    scorer,
    validation_loss,
)
from shrink.stages.prune.config import AUTO, PruneConfig
from shrink.stages.prune.fine_tuning import with_teacher
from shrink.stages.prune.targets import Target, find_target, saved

MOST_GROUPS, MOST_CHANNELS = 24, 1500
"""Larger models are pruned by the cheapest combination: a trial takes longer than fine-tuning."""
RELATIVE_RATE, LEAST_RATE, LARGEST_RATE = 0.016, 2e-4, 5e-3
"""Adam moves a weight by about its rate per update: a fraction of a typical weight."""
_CURVES_BY = "l2"
"""The importance for sensitivity curves: solving takes ten times as long."""


@dataclass(frozen=True)
class Settled:
    """A configuration without `auto`, and the measurements that decided it.

    Attributes:
        target: how many channels each group loses.
        curves: sensitivity of the groups; empty for other allocations.
        known: whether the curves come from the cache.
        training: settings of the fine-tuning.
        choices: the automatic choices, for the report.
    """

    config: PruneConfig
    target: Target
    curves: tuple[Curve, ...]
    known: bool
    training: TrainingConfig
    choices: tuple[Choice, ...] = ()


def settle(graph: ChannelGraph, config: PruneConfig, context: StageContext) -> Settled:
    """Return the settings for each `auto`; with a ratio `l2`, `uniform` and no teacher."""
    if config.budget is None:
        plain = {"importance": "l2", "allocation": "uniform", "teacher": None}
        update = {key: value for key, value in plain.items() if getattr(config, key) == AUTO}
        config = config.model_copy(update=update)
        return _measured(graph, config, config, context, {})
    best, tried = _tried(graph, config, context)
    config, teacher = with_teacher(best.config, context.task(graph.network.model))
    training, rate = _with_rate(graph, config, context.training)
    choices = (*tried, *teacher, *rate)
    return replace(best, config=config, training=training, choices=choices)


def _measured(
    graph: ChannelGraph,
    config: PruneConfig,
    by: PruneConfig,
    context: StageContext,
    sizes: dict[bytes, float],
) -> Settled:
    """Return a configuration with its target and the sensitivity that it needs.

    Args:
        by: the configuration that the sensitivity is measured by.
        sizes: of the models that were built for the budget; see `find_target`.
    """
    curves, known = measure_sensitivity(graph, by, context)
    allocate = _sharing(graph, curves, config, context)
    with context.devices.scope():
        target = find_target(graph, config, context, allocate, sizes)
    return Settled(config, target, tuple(curves), known, context.training)


def _sharing(
    graph: ChannelGraph, curves: Sequence[Curve], config: PruneConfig, context: StageContext
) -> Allocate:
    """Return how pruning is divided among the groups."""
    if config.allocation != "global":
        return allocator(graph, curves, saved(graph, config), config.round_to)
    score = scorer(graph, config, context)
    scores = [comparable(score(group), config.importance) for group in graph.groups]
    return by_ranking(graph.groups, scores, config.round_to)


def _tried(
    graph: ChannelGraph, config: PruneConfig, context: StageContext
) -> tuple[Settled, tuple[Choice, ...]]:
    """Return the combination of importance and allocation with the least validation loss."""
    keys = [key for key in ("importance", "allocation") if getattr(config, key) == AUTO]
    if not keys:
        return _measured(graph, config, config, context, {}), ()
    importances = ["least_squares", "l2"] if config.importance == AUTO else [config.importance]
    if config.allocation == "global":
        importances = [one for one in importances if one != "least_squares"]
    allocations = ["uniform", "sensitivity"] if config.allocation == AUTO else [config.allocation]
    # The second importance is not worth the curves.
    pairs = [(importances[0], allocation) for allocation in allocations]
    pairs += [(importance, allocations[0]) for importance in importances[1:]]
    why = "the only combination that is allowed"
    groups, channels = len(graph.groups), sum(len(group) for group in graph.groups)
    if groups > MOST_GROUPS or channels > MOST_CHANNELS:
        # l2 is the cheapest importance and uniform the cheapest allocation.
        pairs = [(importances[-1], allocations[0])]
        why = f"trying others on {groups} groups of {channels:,} channels would take long"
    elif not len(context.dataset.validation):
        pairs, why = pairs[:1], "no validation examples to compare others on"
    sizes = dict[bytes, float]()
    candidates = [_candidate(graph, config, *pair, context, sizes) for pair in pairs]

    def value(one: Settled) -> str:
        return ", ".join(str(getattr(one.config, key)) for key in keys)

    if len(candidates) == 1:
        return candidates[0], (Choice(key=", ".join(keys), value=value(candidates[0]), why=why),)
    found = list[float]()
    for number, one in enumerate(candidates):
        context.phase("trying importances and allocations", number, len(candidates))
        found.append(_loss_of(graph, one, context))
    losses = [x if math.isfinite(x) else None for x in found]
    best = candidates[int(np.argmin([math.inf if x is None else x for x in losses]))]
    why = "least loss on validation examples before fine-tuning"
    if not any(x is not None for x in losses):
        why = "no combination has a validation loss at this budget"
    options = tuple(
        Option(value=value(one), figures={} if loss is None else {"validation_loss": loss})
        for one, loss in zip(candidates, losses, strict=True)
    )
    return best, (Choice(key=", ".join(keys), value=value(best), why=why, options=options),)


def _candidate(
    graph: ChannelGraph,
    config: PruneConfig,
    importance: str,
    allocation: str,
    context: StageContext,
    sizes: dict[bytes, float],
) -> Settled:
    one = config.model_copy(update={"importance": importance, "allocation": allocation})
    by = one
    if config.allocation == AUTO and importance == "least_squares":
        by = one.model_copy(update={"importance": _CURVES_BY})
    return _measured(graph, one, by, context, sizes)


def _loss_of(graph: ChannelGraph, one: Settled, context: StageContext) -> float:
    """Return the validation loss at the budget, before fine-tuning."""
    chosen = choose(graph, one.target.counts, one.config, context)
    return validation_loss(rebuild(graph, graph.keep(chosen.removed), chosen.weights), context)


def _with_rate(
    graph: ChannelGraph, config: PruneConfig, training: TrainingConfig
) -> tuple[TrainingConfig, tuple[Choice, ...]]:
    """Return the settings of the fine-tuning: an optimizer that the recipe sets is not changed."""
    given = training.optimizer
    if config.epochs == 0 or config.fine_tuning != AUTO or given != OptimizerConfig():
        return training, ()
    typical = typical_weight(graph)
    rate = float(f"{min(LARGEST_RATE, max(LEAST_RATE, RELATIVE_RATE * typical)):.2g}")
    choice = Choice(
        key="fine_tuning",
        value=f"Adam at {rate:g}, falling by a cosine",
        why=f"{RELATIVE_RATE:.1%} of a typical weight",
        options=(
            Option(value="auto", figures={"learning_rate": rate, "typical_weight": typical}),
            Option(value="training", figures={"learning_rate": given.learning_rate}),
        ),
    )
    optimizer = given.model_copy(update={"learning_rate": rate, "schedule": "cosine"})
    return training.model_copy(update={"optimizer": optimizer}), (choice,)


def typical_weight(graph: ChannelGraph) -> float:
    """Return the median over all kernels of their root mean square."""
    kernels = [a for arrays in weights_of(graph).values() for a in arrays if a.ndim > 1]
    sizes = [float(np.sqrt(np.mean(np.square(kernel, dtype=np.float64)))) for kernel in kernels]
    return float(np.median(sizes)) if sizes else 0.0
