"""From what a recipe asks for to how many channels each group loses."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.errors import StageError
from shrink.graph.groups import ChannelGraph
from shrink.graph.rebuild import rebuild, weights_of
from shrink.stages.context import StageContext
from shrink.stages.prune.allocation import (
    Allocate,
    Cost,
    Counts,
    any_channels,
    by_budget,
    by_ratios,
    removed_count,
)
from shrink.stages.prune.config import PruneConfig
from shrink.stages.prune.training_peak import by_training_peak, outputs, step_peak
from shrink.stages.quantize.calibration import CalibrationExamples
from shrink.tflite.arena import arena_bytes
from shrink.tflite.convert import convert

_CONVERSIONS = 6
_CLOSE = 0.98


def channel_counts(
    graph: ChannelGraph, config: PruneConfig, context: StageContext, allocate: Allocate
) -> tuple[Counts, list[str]]:
    """Return how many channels of each group go, and sentences for the report.

    `macs` and `parameters` are what may be left of the unpruned model's, by the arithmetic of
    groups; `file_bytes` and `arena_bytes` are found with real conversions, `training_peak_bytes`
    with real training steps.

    Raises:
        StageError: a budget that even one channel per group exceeds.
        RecipeError: a pattern in `ratios` that fits no group.
    """
    if config.training_peak_bytes is not None:
        context.phase("measuring training peaks")
        measure = step_peak(graph, config, context)
        found = by_training_peak(graph, config.training_peak_bytes, measure, allocate)
        return found.counts, [found.note]
    return _counts(graph, config, context, allocate), []


def _counts(
    graph: ChannelGraph, config: PruneConfig, context: StageContext, allocate: Allocate
) -> Counts:
    everything = graph.keep(np.array([]))
    if config.macs is not None:
        budget = config.macs * graph.macs(everything)
        return by_budget(graph, graph.macs, budget, "macs", allocate)
    if config.parameters is not None:
        budget = config.parameters * graph.parameters(everything)
        return by_budget(graph, graph.parameters, budget, "parameters", allocate)
    if config.file_bytes is not None:
        context.phase("measuring file sizes")
        convert_to = conversion(config, context)
        width = 4 if config.file_precision == "float32" else 1
        return by_file_size(graph, config.file_bytes, lambda m: len(convert_to(m)), width, allocate)
    if config.arena_bytes is not None:
        context.phase("measuring arenas")
        cost = arena_cost(graph, conversion(config, context))
        return by_budget(graph, cost, config.arena_bytes, "arena_bytes", allocate)
    if config.allocation != "uniform" and not config.ratios:
        total = sum(len(group) for group in graph.groups)
        left = total - removed_count(total, config.ratio or 0.0)
        return by_budget(graph, channels_left(graph), left, "ratio", allocate)
    return by_ratios(graph.groups, config.ratios, config.ratio or 0.0, config.round_to)


def by_file_size(
    graph: ChannelGraph,
    budget: int,
    measure: Callable[[keras.Model], int],
    bytes_per_parameter: int,
    allocate: Allocate,
) -> Counts:
    """Return the counts with which the model's file fits `budget`, in a few conversions.

    A file is taken for its parameters plus a rest that hardly changes; each conversion corrects
    the rest.

    Args:
        measure: the size of a model's file in bytes.
    """
    weights = weights_of(graph)
    counts: Counts = [0] * len(graph.groups)
    fits: Counts | None = None
    for _ in range(_CONVERSIONS):
        keep = graph.keep(any_channels(graph, counts))
        size = measure(rebuild(graph, keep, weights))
        if size <= budget:
            fits = counts
            if size >= _CLOSE * budget or not sum(counts):
                break
        rest = size - bytes_per_parameter * graph.parameters(keep)

        def cost(left: np.ndarray, rest: int = rest) -> float:
            return bytes_per_parameter * graph.parameters(left) + rest

        previous, counts = counts, by_budget(graph, cost, budget, "file_bytes", allocate)
        if counts == previous:
            break
    if fits is None:
        raise StageError(
            f"file_bytes: no model of at most {budget:,} bytes was found in {_CONVERSIONS} steps",
            subject="prune",
            hint="lower file_bytes a little",
        )
    return fits


def saved(graph: ChannelGraph, config: PruneConfig) -> Cost:
    """Return the cost that groups are pruned to save: the budget's, or what stands for it."""
    if config.macs is not None:
        return graph.macs
    if config.training_peak_bytes is not None:
        return lambda keep: outputs(graph, keep)
    return channels_left(graph) if config.ratio is not None else graph.parameters


def channels_left(graph: ChannelGraph) -> Cost:
    """Return how many channels of all groups are left, by what stays."""
    channels = np.concatenate([group.channels for group in graph.groups])
    return lambda keep: float(keep[channels].sum())


def arena_cost(graph: ChannelGraph, convert_to: Callable[[keras.Model], bytes]) -> Cost:
    """Return the tensor arena of the rebuilt model's TFLite file in bytes, by what stays.

    Raises:
        StageError: (the cost) an arena that cannot be told.
    """
    weights = weights_of(graph)
    known: dict[bytes, float] = {}

    def cost(keep: np.ndarray) -> float:
        key = keep.tobytes()
        if key not in known:
            with tempfile.TemporaryDirectory(prefix="shrink-arena-") as folder:
                path = Path(folder) / "model.tflite"
                path.write_bytes(convert_to(rebuild(graph, keep, weights)))
                figure = arena_bytes(path)
            if figure.value is None:
                raise StageError(f"arena_bytes: {figure.note}", subject="prune")
            known[key] = figure.value
        return known[key]

    return cost


def conversion(config: PruneConfig, context: StageContext) -> Callable[[keras.Model], bytes]:
    """Return how to make a model's TFLite file, float32 or int8 with int8 in- and outputs."""
    if config.file_precision == "float32":
        return lambda model: convert(model, "float32").content
    # Sizes do not depend on the ranges: a few examples are enough.
    examples = CalibrationExamples(context.dataset.train, 10, context.training.seed)
    return lambda model: convert(model, "static_int8", examples, "int8", "int8").content
