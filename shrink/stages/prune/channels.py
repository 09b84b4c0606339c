"""Pruning by channels: find the groups, choose, rebuild, prove it, fine-tune."""

from __future__ import annotations

import contextlib
from dataclasses import asdict

import numpy as np
import tf_keras as keras

from shrink.base.errors import StageError, listed
from shrink.contract.details import Curve as CurveRow
from shrink.contract.details import Details
from shrink.contract.report import Skipped
from shrink.engine.record import TrainingRecord, joined
from shrink.graph.groups import ChannelGraph, find_groups
from shrink.graph.rebuild import (
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
from shrink.stages.prune.automatic import settle
from shrink.stages.prune.choice import choose, sample
from shrink.stages.prune.config import AUTO, PruneConfig
from shrink.stages.prune.fine_tuning import fine_tuning
from shrink.stages.prune.length import first_epochs, prolong, watched
from shrink.stages.prune.targets import Target

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
    config, target = settled.config, settled.target
    _refuse_nothing(target.counts, graph, config, context)
    choices, notes = [*settled.choices], list[str]()
    records, differences = list[TrainingRecord](), list[float]()
    # The remainder of an uneven division goes to the last round.
    each, rest = divmod(first_epochs(config, context), config.steps)
    current, model = graph, graph.network.model
    for number, counts in enumerate(in_rounds(target.counts, config.steps), start=1):
        is_last = number == config.steps
        context.phase("choosing channels")
        if number > 1:
            current = find_groups(model, config.exclude)
        chosen = choose(current, counts, config, context)
        keep = current.keep(chosen.removed)
        with context.devices.scope():
            smaller = rebuild(current, keep, chosen.weights)
            same_size = rebuild(current, current.keep(np.array([])), chosen.weights)
            for name, arrays in masked(current, keep, chosen.weights).items():
                if arrays:
                    same_size.get_layer(name).set_weights(arrays)
            examples = sample(context, _CHECKED)
            differences.append(check_same(same_size, smaller, examples))
            if is_last:
                target.verify(smaller)
        model, masks = smaller, list[FrozenMasks]()
        if not config.rebuild:
            model = same_size
            for name in unfrozen(current.network, smaller):
                model.get_layer(name).trainable = True
            masks = [_frozen(model, current, keep, context)]
        notes += [note for note in chosen.notes if note not in notes]
        epochs = each + rest if is_last else each
        if not epochs:
            continue
        with watched(model, context) if is_last else contextlib.nullcontext():
            with fine_tuning(model, graph, config, context) as (learning, objective):
                record = context.train(
                    learning, objective, epochs, masks, training=settled.training
                )
            if is_last and config.epochs == AUTO:
                record, length = prolong(
                    model, record, epochs, context, masks=masks, training=settled.training
                )
                choices += length
        records.append(record)
    if config.teacher == "self" and config.passes:
        choices += temperature_choice(config.temperature, context.task(model).losses)
    if config.file_bytes is not None and config.passes:
        target.verify(model)  # a file stores equal weights once; fine-tuning made them differ
    notes = [
        *_notes(graph, target, config),
        *notes,
        f"the rebuilt model equals the masked one to {max(differences):.1e} before fine-tuning",
        *(choice.sentence for choice in choices),
    ]
    if changed := unfrozen(graph.network, model):
        notes.append(unfrozen_note(changed))
    if settled.known:
        notes.append("the groups' sensitivity comes from the cache of an earlier run")
    details = Details(
        choices=tuple(choices),
        sensitivity=tuple(CurveRow(**asdict(curve)) for curve in settled.curves),
        budget=target.budget,
    )
    return StageResult(
        model=model,
        training=joined(records) if records else None,
        skipped=_skipped(graph, target.counts),
        notes=notes,
        details=details if choices or settled.curves or target.budget else None,
    )


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
    ends = (graph.keep(np.array([])), graph.keep(any_channels(graph, counts)))
    total = sum(len(group) for group in graph.groups)
    widths = [
        f"{'+'.join(group.layers)} {len(group)} to {len(group) - count}"
        for group, count in zip(graph.groups, counts, strict=True)
        if count
    ]
    how = "removed" if config.rebuild else "masked"
    others = {"parameters": graph.parameters, "macs": graph.macs}
    return [
        f"{sum(counts):,} of {total:,} channels in {len(widths)} of {len(graph.groups)} groups "
        f"{how} by {config.importance}{f' in {config.steps} rounds' if config.steps > 1 else ''}",
        *target.notes(config),
        *(
            _change("MACs of layers with channels" if name == "macs" else name, cost, ends, config)
            for name, cost in others.items()
            if target.budget is None or name != target.budget.figure
        ),
        *_less_than_asked(graph, counts, config),
        f"channels: {listed(widths, _LISTED)}",
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
        f"{sum(counts) / total:.1%} of the channels are removed, less than requested: in "
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
