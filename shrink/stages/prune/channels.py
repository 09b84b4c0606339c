"""Pruning by channels: find the groups, choose, rebuild, prove it, fine-tune."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.contract.choices import Choice
from shrink.contract.details import Budget, Details
from shrink.contract.details import Curve as CurveRow
from shrink.contract.report import Skipped
from shrink.engine.record import TrainingRecord, joined
from shrink.graph.groups import ChannelGraph, find_groups
from shrink.graph.rebuild import (
    Weights,
    masked,
    rebuild,
    unfrozen,
    unfrozen_note,
    weight_masks,
)
from shrink.pruning.allocation import (
    Cost,
    Counts,
    any_channels,
    by_ratios,
    in_rounds,
)
from shrink.pruning.masks import FrozenMasks, refuse_unmatched
from shrink.pruning.reconstruct import check_same
from shrink.stages.context import StageContext, StageResult
from shrink.stages.distill.objective import temperature_choice
from shrink.stages.prune.automatic import Settled, settle, sharing
from shrink.stages.prune.choice import choose, sample
from shrink.stages.prune.config import AUTO, PruneConfig
from shrink.stages.prune.fine_tuning import fine_tuning
from shrink.stages.prune.length import first_epochs, prolong
from shrink.stages.prune.targets import Target, find_target

_CHECKED = 8
_LISTED = 40


def prune_channels(config: PruneConfig, context: StageContext) -> StageResult:
    """Remove whole channels from the model, so that it really is smaller.

    Raises:
        StageError: nothing could be removed, the budget is out of reach, or the rebuilt model is
            not the masked one.
    """
    graph = find_groups(context.load(), config.exclude)
    refuse_unmatched(config.exclude, list(graph.layers), "prune.exclude")
    _refuse_no_groups(graph, config, context)
    # Not in the devices' scope: variables of several replicas have no gradients outside of a step.
    settled = settle(graph, config, context)
    config, curves = settled.config, settled.curves
    allocate = sharing(graph, curves, config, context)
    with context.devices.scope():
        target = find_target(graph, config, context, allocate)
        _refuse_nothing(target.counts, graph, config, context)
    counts = target.counts
    rounds: list[_Round] = []
    # What does not divide evenly belongs to the last round.
    each, rest = divmod(first_epochs(config, context), config.steps)
    for part in in_rounds(counts, config.steps):
        now = find_groups(rounds[-1].model, config.exclude) if rounds else graph
        is_last = len(rounds) == config.steps - 1
        check = target.verify if is_last else None
        epochs = each + rest if is_last else each
        automatic = is_last and config.epochs == AUTO
        rounds.append(
            _round(now, part, graph, settled, context, check, epochs=epochs, automatic=automatic)
        )
    settled = replace(settled, choices=(*settled.choices, *rounds[-1].choices))
    if config.teacher == "self" and config.passes:
        losses = context.task(rounds[-1].model).losses
        softened = temperature_choice(config.temperature, losses)
        settled = replace(settled, choices=(*settled.choices, *softened))
    if config.file_bytes is not None and config.passes:
        target.verify(rounds[-1].model)  # a file stores equal weights once, and training parts them
    records = [one.record for one in rounds if one.record is not None]
    difference = max(one.difference for one in rounds)
    notes = [
        *_notes(graph, target, config),
        *target.notes,
        *dict.fromkeys(n for r in rounds for n in r.notes),
    ]
    notes.append(f"the rebuilt model equals the masked one to {difference:.1e} before fine-tuning")
    notes += [one.sentence for one in settled.choices]
    if changed := unfrozen(graph.network, rounds[-1].model):
        notes.append(unfrozen_note(changed))
    if settled.known:
        notes.append("the groups' sensitivity was known from an earlier run")
    return StageResult(
        model=rounds[-1].model,
        training=joined(records) if records else None,
        skipped=_skipped(graph, counts),
        notes=notes,
        details=_details(settled, target),
    )


def _details(settled: Settled, target: Target) -> Details | None:
    if not settled.curves and target.met is None and not settled.choices:
        return None
    return Details(
        choices=settled.choices,
        sensitivity=tuple(CurveRow(**asdict(curve)) for curve in settled.curves),
        budget=None if target.met is None else Budget(**asdict(target.met)),
    )


@dataclass(frozen=True)
class _Round:
    """A model with fewer channels, fine-tuned, and how it differs from the masked one before."""

    model: keras.Model
    difference: float
    record: TrainingRecord | None
    notes: tuple[str, ...]
    choices: tuple[Choice, ...] = ()


def _round(
    graph: ChannelGraph,
    counts: Counts,
    unpruned: ChannelGraph,
    settled: Settled,
    context: StageContext,
    check: Callable[[keras.Model], None] | None,
    *,
    epochs: int,
    automatic: bool,
) -> _Round:
    config = settled.config
    context.phase("choosing channels")
    chosen = choose(graph, counts, config, context)
    keep = graph.keep(chosen.removed)
    with context.devices.scope():
        smaller = rebuild(graph, keep, chosen.weights)
        same_size = rebuild(graph, graph.keep(np.array([])), chosen.weights)
        _set(same_size, masked(graph, keep, chosen.weights))
        difference = check_same(same_size, smaller, graph, keep, sample(context, _CHECKED))
        if check is not None:
            check(smaller)
    pruned = smaller
    if not config.rebuild:
        pruned = same_size
        for name in unfrozen(graph.network, smaller):
            same_size.get_layer(name).trainable = True
    hooks = [] if config.rebuild else [_frozen(same_size, graph, keep, context)]
    if not epochs:
        return _Round(pruned, difference, None, chosen.notes)
    with fine_tuning(pruned, unpruned, config, context) as (learning, objective):
        training = settled.training
        record = context.train(learning, objective, epochs, hooks, training=training)
    if not automatic:
        return _Round(pruned, difference, record, chosen.notes)
    whole, choices = prolong(pruned, record, epochs, context, masks=hooks, training=training)
    return _Round(pruned, difference, whole, chosen.notes, choices)


def _frozen(
    model: keras.Model, graph: ChannelGraph, keep: np.ndarray, context: StageContext
) -> FrozenMasks:
    masks = weight_masks(graph, keep)
    pairs = [
        (weight, mask)
        for name, arrays in masks.items()
        for weight, mask in zip(model.get_layer(name).weights, arrays, strict=True)
        if weight.trainable and not mask.all()
    ]
    with context.devices.scope():
        return FrozenMasks(pairs)


def _set(model: keras.Model, weights: Weights) -> None:
    for name, arrays in weights.items():
        if arrays:
            model.get_layer(name).set_weights(arrays)


def _refuse_no_groups(graph: ChannelGraph, config: PruneConfig, context: StageContext) -> None:
    if graph.groups or not (config.ratio is None or config.ratio > 0):
        return
    reasons = "; ".join(f"{p.layer}: {p.reason}" for p in graph.protected[:_LISTED])
    raise StageError(
        f"no layer has channels that can be removed ({reasons or 'none has any'})",
        subject=context.name,
        hint="shrink inspect MODEL --groups",
    )


def _refuse_nothing(
    counts: Counts, graph: ChannelGraph, config: PruneConfig, context: StageContext
) -> None:
    wanted = config.ratio is None or config.ratio > 0 or any(config.ratios.values())
    if sum(counts) or not wanted:
        return
    largest = max(len(group) for group in graph.groups)
    why = f"the largest of {len(graph.groups)} groups has {largest} channels"
    if config.round_to > 1:
        why += f", and what stays is a multiple of {config.round_to}"
    raise StageError(
        f"no channel would be removed: {why}",
        subject=context.name,
        hint="raise the ratio, or lower the budget or round_to",
    )


def _notes(graph: ChannelGraph, target: Target, config: PruneConfig) -> list[str]:
    counts = target.counts
    asked = target.met.figure if target.met else None
    ends = (graph.keep(np.array([])), graph.keep(any_channels(graph, counts)))
    total = sum(len(group) for group in graph.groups)
    widths = [
        f"{'+'.join(group.layers)} {len(group)} to {len(group) - count}"
        for group, count in zip(graph.groups, counts, strict=True)
        if count
    ]
    rest = f" and {len(widths) - _LISTED} more" if len(widths) > _LISTED else ""
    how = "removed" if config.rebuild else "masked"
    return [
        f"{sum(counts):,} of {total:,} channels in {len(widths)} of {len(graph.groups)} groups "
        f"{how} by {config.importance}{f' in {config.steps} rounds' if config.steps > 1 else ''}",
        *([target.met.note] if target.met else []),
        *([] if asked == "parameters" else [_change("parameters", graph.parameters, ends, config)]),
        *(
            []
            if asked == "macs"
            else [_change("MACs of layers with channels", graph.macs, ends, config)]
        ),
        *_less_than_asked(graph, counts, config),
        f"channels: {', '.join(widths[:_LISTED])}{rest}",
    ]


def _less_than_asked(graph: ChannelGraph, counts: Counts, config: PruneConfig) -> list[str]:
    """Say so where groups keep channels that the ratio would have taken, for `round_to`."""
    if config.round_to == 1 or config.ratio is None or config.allocation != "uniform":
        return []
    rounded = [
        group.name
        for group, wanted, count in zip(
            graph.groups,
            by_ratios(graph.groups, config.ratios, config.ratio),
            counts,
            strict=True,
        )
        if count < wanted
    ]
    if not rounded:
        return []
    total = sum(len(group) for group in graph.groups)
    return [
        f"{sum(counts) / total:.1%} of the channels go, less than was asked for: in "
        f"{', '.join(rounded[:_LISTED])} what stays is a multiple of {config.round_to}"
    ]


def _change(
    name: str, figure: Cost, ends: tuple[np.ndarray, np.ndarray], config: PruneConfig
) -> str:
    before, after = (int(figure(keep)) for keep in ends)
    text = f"{name}: {before:,} to {after:,} ({after / max(before, 1):.1%})"
    return text if config.rebuild else f"{text} once rebuilt; masked, the shapes stay"


def _skipped(graph: ChannelGraph, counts: Counts) -> tuple[Skipped, ...]:
    small = [
        Skipped(layer="+".join(g.layers), reason=f"none of its {len(g)} channels was to go")
        for g, count in zip(graph.groups, counts, strict=True)
        if not count
    ]
    return (*graph.protected, *small)
