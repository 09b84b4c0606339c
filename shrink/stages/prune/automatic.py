"""What `prune` chooses by itself where a recipe gives a budget and leaves the rest open.

Importance and allocation are tried: channels are removed until arithmetic meets the budget, and
what has the least loss on validation examples, before any fine-tuning, is taken. Teacher and rate
of the fine-tuning follow rules that were found on other models' validation examples
(`tests.benchmarks.bench_defaults`): to try them would be to fine-tune several times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shrink.base.errors import StageError
from shrink.base.losses import takes_logits
from shrink.contract.choices import Choice, Option
from shrink.engine.config import OptimizerConfig, TrainingConfig
from shrink.graph.groups import ChannelGraph
from shrink.graph.rebuild import rebuild, weights_of
from shrink.pruning.allocation import Allocate, by_budget, by_ranking, comparable
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
from shrink.stages.prune.targets import saved

MOST_GROUPS, MOST_CHANNELS = 24, 1500
"""Above these nothing is tried, nor solved for, unless the recipe asks for it: it would take longer
than the fine-tuning."""
RELATIVE_RATE, LEAST_RATE, LARGEST_RATE = 0.016, 2e-4, 5e-3
"""Adam moves a weight by about its rate in an update: this part of what weights are like."""
_CURVES_BY = "l2"
"""The importance that groups are pruned by for their curves: to solve takes ten times as long."""


@dataclass(frozen=True)
class Settled:
    """A configuration without anything open, and what was found out on the way.

    Attributes:
        training: of the fine-tuning.
        choices: what was chosen over what.
        curves: of the groups, where the allocation has some.
        known: whether these were measured in an earlier run.
    """

    config: PruneConfig
    training: TrainingConfig
    choices: tuple[Choice, ...] = ()
    curves: tuple[Curve, ...] = ()
    known: bool = False


def settle(graph: ChannelGraph, config: PruneConfig, context: StageContext) -> Settled:
    """Return what is done where the recipe says `auto`; with a ratio, what it always was."""
    if config.budget is None:
        config = _with_defaults(config)
        curves, known = measure_sensitivity(graph, config, context)
        return Settled(config, context.training, (), tuple(curves), known)
    best, tried = _tried(graph, config, context)
    config, choices = best.config, list(tried)
    if config.teacher == AUTO:
        config, choice = _with_teacher(graph, config, context)
        choices += choice
    training, rate = _with_rate(graph, config, context.training)
    return Settled(config, training, (*choices, *rate), best.curves, best.known)


def sharing(
    graph: ChannelGraph, curves: Sequence[Curve], config: PruneConfig, context: StageContext
) -> Allocate:
    """Return how pruning is shared among the groups, by a configuration that is settled."""
    if config.allocation != "global":
        return allocator(graph, curves, saved(graph, config), config.round_to)
    score = scorer(graph, config, context)
    scores = [comparable(score(group), config.importance) for group in graph.groups]
    return by_ranking(graph.groups, scores, config.round_to)


def _with_defaults(config: PruneConfig) -> PruneConfig:
    plain = {"importance": "l2", "allocation": "uniform", "teacher": None}
    taken = {key: value for key, value in plain.items() if getattr(config, key) == AUTO}
    return config.model_copy(update=taken)


@dataclass(frozen=True)
class _Candidate:
    """An importance and an allocation, with the curves of the groups where it has some."""

    config: PruneConfig
    curves: tuple[Curve, ...] = ()
    known: bool = False


def _tried(
    graph: ChannelGraph, config: PruneConfig, context: StageContext
) -> tuple[_Candidate, tuple[Choice, ...]]:
    """Return the importance and the allocation of the least validation loss."""
    opened = [key for key in ("importance", "allocation") if getattr(config, key) == AUTO]
    pairs = list(_pairs(config))
    if not opened:
        curves, known = measure_sensitivity(graph, config, context)
        return _Candidate(config, tuple(curves), known), ()
    why = ""
    if large := _too_large(graph):
        pairs, why = pairs[-1:] if config.importance == AUTO else pairs[:1], large
    elif not len(context.dataset.validation):
        pairs, why = pairs[:1], "there are no validation examples to try on"
    candidates = [_candidate(graph, config, pair, context) for pair in pairs]
    if len(candidates) == 1:
        return candidates[0], (
            _choice(opened, candidates[0].config, why or "it goes with the other"),
        )
    context.phase("trying importances and allocations")
    found = [_loss_of(graph, one, context) for one in candidates]
    losses = [None if x is None or not math.isfinite(x) else x for x in found]
    best = candidates[int(np.argmin([math.inf if x is None else x for x in losses]))]
    options = tuple(
        Option(
            value=_value(opened, one.config),
            figures={} if loss is None else {"validation_loss": loss},
        )
        for one, loss in zip(candidates, losses, strict=True)
    )
    why = "least loss on validation examples before fine-tuning"
    if not any(x is not None for x in losses):
        why = "none of them has a loss on validation examples at the budget"
    return best, (_choice(opened, best.config, why, options),)


def _too_large(graph: ChannelGraph) -> str:
    """Return why nothing is tried on a model; empty where it is small enough."""
    groups, channels = len(graph.groups), sum(len(group) for group in graph.groups)
    if groups <= MOST_GROUPS and channels <= MOST_CHANNELS:
        return ""
    return f"to try others on {groups} groups of {channels:,} channels would take long"


def _pairs(config: PruneConfig) -> Iterator[tuple[str, str]]:
    """Yield what may be tried: what is best without a trial first, what is cheapest last."""
    importances = ["least_squares", "l2"] if config.importance == AUTO else [config.importance]
    if config.allocation == "global":
        importances = [one for one in importances if one != "least_squares"]
    allocations = ["uniform", "sensitivity"] if config.allocation == AUTO else [config.allocation]
    for importance, allocation in itertools.product(importances, allocations):
        # The worse importance is not worth the curves.
        if importance == importances[0] or allocation == allocations[0]:
            yield importance, allocation


def _candidate(
    graph: ChannelGraph, config: PruneConfig, pair: tuple[str, str], context: StageContext
) -> _Candidate:
    importance, allocation = pair
    one = config.model_copy(update={"importance": importance, "allocation": allocation})
    by = one
    if config.allocation == AUTO and importance == "least_squares":
        by = one.model_copy(update={"importance": _CURVES_BY})
    curves, known = measure_sensitivity(graph, by, context)
    return _Candidate(one, tuple(curves), known)


def _loss_of(graph: ChannelGraph, one: _Candidate, context: StageContext) -> float | None:
    """Return the validation loss at the budget, as far as arithmetic tells; None out of reach."""
    config = one.config
    cost = saved(graph, config)
    everything = cost(graph.keep(np.array([])))
    limit = _limit(config, everything)
    try:
        allocate = sharing(graph, one.curves, config, context)
        counts = by_budget(graph, cost, limit, str(config.budget), allocate)
    except StageError:
        return None
    chosen = choose(graph, counts, config, context)
    return validation_loss(rebuild(graph, graph.keep(chosen.removed), chosen.weights), context)


def _limit(config: PruneConfig, everything: float) -> float:
    """Return what may be left of the cost that stands for the budget, half where nothing tells."""
    share = config.macs or config.parameters
    if share is not None:
        return share * everything
    if config.file_bytes is not None:
        return min(config.file_bytes / (1 if config.file_precision == "int8" else 4), everything)
    return everything / 2


def _value(opened: Sequence[str], config: PruneConfig) -> str:
    return ", ".join(str(getattr(config, key)) for key in opened)


def _choice(
    opened: Sequence[str], config: PruneConfig, why: str, options: tuple[Option, ...] = ()
) -> Choice:
    value = _value(opened, config)
    return Choice(key=", ".join(opened), value=value, why=why, options=options)


def _with_teacher(
    graph: ChannelGraph, config: PruneConfig, context: StageContext
) -> tuple[PruneConfig, list[Choice]]:
    """Return it with the unpruned model as teacher, where the task has softened outputs."""
    if config.epochs == 0:
        return config.model_copy(update={"teacher": None}), []
    task = context.task(rebuild(graph, graph.keep(np.array([])), weights_of(graph)))
    taken, why = "self", "the unpruned model knows more than the labels"
    if task.detector is None and (others := _without_softened_outputs(task.losses)):
        taken, why = "none", f"softened outputs are for classes of one kind, the loss is {others}"
    update = {"teacher": None if taken == "none" else taken}
    return config.model_copy(update=update), [Choice(key="teacher", value=taken, why=why)]


def _without_softened_outputs(losses: Sequence[str]) -> str:
    """Return the losses whose outputs no teacher softens; those of several kinds count."""
    kinds = dict.fromkeys(losses)
    return ", ".join(one for one in kinds if len(kinds) > 1 or not takes_logits(one))


def _with_rate(
    graph: ChannelGraph, config: PruneConfig, training: TrainingConfig
) -> tuple[TrainingConfig, tuple[Choice, ...]]:
    """Return the training of the fine-tuning: what the recipe says of it is taken as it is."""
    given = training.optimizer
    if config.epochs == 0 or config.fine_tuning != AUTO or given != OptimizerConfig():
        return training, ()
    typical = typical_weight(graph)
    rate = float(f"{min(LARGEST_RATE, max(LEAST_RATE, RELATIVE_RATE * typical)):.2g}")
    choice = Choice(
        key="fine_tuning",
        value=f"Adam at {rate:g}, falling by a cosine",
        why=f"{RELATIVE_RATE:.1%} of what weights are like",
        options=(
            Option(value="auto", figures={"learning_rate": rate, "typical_weight": typical}),
            Option(value="training", figures={"learning_rate": given.learning_rate}),
        ),
    )
    optimizer = given.model_copy(update={"learning_rate": rate, "schedule": "cosine"})
    return training.model_copy(update={"optimizer": optimizer}), (choice,)


def typical_weight(graph: ChannelGraph) -> float:
    """Return the median over all kernels of the root of their mean square."""
    kernels = [a for arrays in weights_of(graph).values() for a in arrays if a.ndim > 1]
    sizes = [float(np.sqrt(np.mean(np.square(kernel, dtype=np.float64)))) for kernel in kernels]
    return float(np.median(sizes)) if sizes else 0.0
