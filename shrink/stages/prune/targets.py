"""How many channels each group loses, by the ratio or the budget of a recipe."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.compact.compact import DEFAULT_EXTRA_MACS, smallest_arena
from shrink.contract.details import Budget
from shrink.graph.groups import ChannelGraph
from shrink.graph.macs import count_macs
from shrink.graph.rebuild import parted, rebuild, weights_of
from shrink.pruning.allocation import (
    Allocate,
    Cost,
    Counts,
    any_channels,
    by_budget,
    by_ratios,
    removed_count,
)
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.context import StageContext
from shrink.stages.prune.config import PruneConfig
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import static_int8
from shrink.tflite.arena import arena_of
from shrink.tflite.convert import convert

_CLOSE, _MOST_MODELS = 0.98, 14
"""A model that takes so much of its budget is not made larger, nor are more models built."""
_CALIBRATION = 10
"""Sizes do not depend on the ranges: a few examples are enough."""


@dataclass
class Target:
    """How many channels each group loses, and the budget that this meets, if any.

    Attributes:
        counts: channels to remove from each group.
        measure: the figure of a model that the budget limits.
        budget: what became of it, for the report.
    """

    counts: Counts
    measure: Callable[[keras.Model], float] | None = None
    budget: Budget | None = None

    def notes(self, config: PruneConfig) -> list[str]:
        """Return sentences for the report."""
        if self.budget is None:
            return []
        budget, before, after = self.budget, self.budget.before or 0.0, self.budget.after or 0.0
        of = f" of the {budget.precision} file" if budget.precision else ""
        share = f"{after / before:.1%}" if before else "all"
        notes = [
            f"{budget.figure}{of}: {before:,.0f} to {after:,.0f} ({share}), budget "
            f"{budget.limit:,.0f}"
        ]
        if budget.figure == "file_bytes" and budget.precision == "int8":
            notes[0] += "; `quantize` with `dense_scales: tensor` makes the file smaller"
        if config.arena == "compacted":
            notes.append(
                "arena_bytes counts on the stage compact after quantize, with up to "
                f"{100 * _extra_macs(config):.4g} % more multiply-accumulates; without compact the "
                "arena is larger"
            )
        return notes

    def verify(self, model: keras.Model) -> None:
        """Measure the pruned model itself.

        Raises:
            StageError: its figure is above the budget.
        """
        if self.measure is None or self.budget is None:
            return
        after, limit = self.measure(model), self.budget.limit or 0.0
        self.budget = replace(self.budget, after=after)
        if after > limit:
            raise StageError(
                f"{self.budget.figure}: the pruned model has {after:,.0f}, above the budget of "
                f"{limit:,.0f}",
                subject="prune",
                hint=f"set prune.{self.budget.figure} to {2 * limit - after:,.0f}",
            )


def find_target(
    graph: ChannelGraph,
    config: PruneConfig,
    context: StageContext,
    allocate: Allocate,
    known: dict[bytes, float],
) -> Target:
    """Return how many channels of each group go.

    Budgets limit the figures of the report: `macs` are counted in the TFLite file, `file_bytes`
    and `arena_bytes` come from real conversions.

    Args:
        known: the figure of the models that were built before, by the bytes of `ChannelGraph.keep`;
            this search adds its own.

    Raises:
        StageError: a budget that is out of reach or already met.
        RecipeError: a pattern in `ratios` that fits no group.
    """
    if config.budget is not None:
        return _budget(config.budget, graph, config, context, allocate, known)
    if config.allocation not in ("auto", "uniform") and not config.ratios:
        total = sum(len(group) for group in graph.groups)
        left = total - removed_count(total, config.ratio or 0.0)
        return Target(by_budget(graph, channels_left(graph), left, "ratio", allocate))
    return Target(by_ratios(graph.groups, config.ratios, config.ratio or 0.0, config.round_to))


def _budget(
    name: str,
    graph: ChannelGraph,
    config: PruneConfig,
    context: StageContext,
    allocate: Allocate,
    known: dict[bytes, float],
) -> Target:
    measure, precision = _measure(name, config, context)
    weights = weights_of(graph)
    if config.passes:
        # Fine-tuning makes equal weights differ, which a file stores once.
        random = np.random.default_rng(0)
        weights = {layer: parted(arrays, random) for layer, arrays in weights.items()}

    def left(keep: np.ndarray) -> float:
        if (key := keep.tobytes()) not in known:
            context.phase(f"measuring {name}: model {len(known) + 1}")
            known[key] = measure(rebuild(graph, keep, weights))
        return known[key]

    budget, before = getattr(config, name), left(graph.keep(np.array([])))
    limit = budget if name.endswith("bytes") else math.floor(budget * before)
    if before <= limit:
        raise StageError(
            f"{name}: the model has {before:,.0f}, which is within the budget of {limit:,.0f}: "
            "there is nothing to prune",
            subject="prune",
            hint="lower the budget, or leave the stage out",
        )
    counts = by_budget(graph, left, limit, name, allocate, close=_CLOSE, most=_MOST_MODELS)
    after = left(graph.keep(any_channels(graph, counts)))
    budget_met = Budget(
        figure=name,
        limit=limit,
        before=before,
        after=after,
        precision=precision,
        measured=len(known),
    )
    return Target(counts, measure, budget_met)


def _measure(
    name: str, config: PruneConfig, context: StageContext
) -> tuple[Callable[[keras.Model], float], str | None]:
    """Return how a figure of a model is measured, and the precision of the file, if it is one."""
    if name == "parameters":
        return lambda model: float(model.count_params()), None
    if name == "macs":
        return lambda model: _macs(convert(model, "float32").content), None
    convert_to, precision = conversion(config, context), config.file_precision
    if name == "file_bytes":
        return lambda model: float(len(convert_to(model))), precision
    limit = config.arena_bytes
    if config.arena == "compacted" and limit is not None:
        extra = _extra_macs(config)
        return lambda model: float(smallest_arena(convert_to(model), limit, extra)), precision
    return lambda model: _arena(convert_to(model)), precision


def _extra_macs(config: PruneConfig) -> float:
    """Return the fraction of multiply-accumulates that compaction may add."""
    return DEFAULT_EXTRA_MACS if config.max_extra_macs is None else config.max_extra_macs


def _macs(content: bytes) -> float:
    """Return the multiply-accumulates of a float32 file.

    Raises:
        StageError: the file has a loop with an unknown number of rounds.
    """
    macs: int | None = count_macs(content)
    if macs is None:
        raise StageError(
            "macs: the multiply-accumulates of this model cannot be counted: its TFLite file has a "
            "loop with an unknown number of rounds",
            subject="prune",
            hint="give a budget of parameters or file_bytes, or a ratio",
        )
    return float(macs)


def _arena(content: bytes) -> float:
    with tempfile.TemporaryDirectory(prefix="shrink-arena-") as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        figure = arena_of(path)
    if figure.value is None:
        raise StageError(
            f"arena_bytes: {figure.reason}",
            subject="prune",
            hint="prune to macs or file_bytes instead, or set file_precision: int8",
        )
    return float(figure.value)


def saved(graph: ChannelGraph, config: PruneConfig) -> Cost:
    """Return the figure, by arithmetic, that the groups are pruned to reduce.

    An arena holds activations: multiply-accumulates, unlike parameters, grow with their size.
    """
    if config.macs is not None or config.arena_bytes is not None:
        return graph.macs
    return channels_left(graph) if config.ratio is not None else graph.parameters


def channels_left(graph: ChannelGraph) -> Cost:
    """Return the cost that counts the channels left in all groups."""
    channels = np.concatenate([group.channels for group in graph.groups])
    return lambda keep: float(keep[channels].sum())


def conversion(config: PruneConfig, context: StageContext) -> Callable[[keras.Model], bytes]:
    """Return how to make a model's TFLite file: float32, or int8 as `quantize` makes it."""
    if config.file_precision == "float32":
        return lambda model: convert(model, "float32").content
    data, seed = context.dataset, context.training.seed
    examples = CalibrationExamples(data.train, _CALIBRATION, seed, data.input_names)
    # `dense_scales: auto` chooses by the final weights; this is the larger of its two files.
    settings = QuantizeConfig(scheme="static_wi8_ai8", dense_scales="channel")
    return lambda model: static_int8(FloatModel(model), examples, settings).content
