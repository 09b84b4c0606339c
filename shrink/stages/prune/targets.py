"""From what a recipe asks for to how many channels each group loses."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tf_keras as keras

from shrink.base.errors import StageError
from shrink.compact.compact import DEFAULT_EXTRA_MACS, smallest_arena
from shrink.graph.groups import ChannelGraph
from shrink.graph.macs import count_macs
from shrink.graph.rebuild import Weights, parted, rebuild, weights_of
from shrink.pruning.allocation import (
    Allocate,
    Cost,
    Counts,
    any_channels,
    by_budget,
    by_figure,
    by_ratios,
    removed_count,
)
from shrink.quantization.calibration import CalibrationExamples
from shrink.quantization.source import FloatModel
from shrink.stages.context import StageContext
from shrink.stages.prune.config import PruneConfig
from shrink.stages.quantize.config import QuantizeConfig
from shrink.stages.quantize.schemes import static_int8
from shrink.tflite.arena import arena_bytes
from shrink.tflite.convert import convert

_COMPACTED = (
    "arena_bytes counts on the stage compact after quantize, with {:.4g} % more "
    "multiply-accumulates: without it the arena is larger"
)
_CALIBRATION = 10
"""Sizes do not depend on the ranges: a few examples are enough."""


@dataclass(frozen=True)
class BudgetMet:
    """What became of a budget, by the figure that the report gives.

    Attributes:
        figure: `macs`, `parameters`, `file_bytes` or `arena_bytes`.
        limit: the most that may be left, in the figure's unit.
        before: of the unpruned model.
        after: of the pruned one.
        precision: of the file that the figure is taken from, where it is one.
        measured: models that were built and measured on the way; None where nobody counted.
    """

    figure: str
    limit: float
    before: float
    after: float
    precision: str | None
    measured: int | None

    @property
    def note(self) -> str:
        """A sentence for the report."""
        of = f" of the {self.precision} file" if self.precision else ""
        share = f"{self.after / self.before:.1%}" if self.before else "all"
        is_bound = self.figure == "file_bytes" and self.precision == "int8"
        why = "; less where `quantize` takes `dense_scales: tensor`" if is_bound else ""
        return (
            f"{self.figure}{of}: {self.before:,.0f} to {self.after:,.0f} ({share}), at most "
            f"{self.limit:,.0f} were to be left{why}"
        )


class Target:
    """What a recipe asks for: how many channels of each group go, and whether that was enough.

    Attributes:
        counts: channels to remove from each group.
        notes: sentences for the report.
        met: the budget, where there is one.
    """

    def __init__(
        self,
        counts: Counts,
        notes: Sequence[str] = (),
        met: BudgetMet | None = None,
        measure: Callable[[keras.Model], float] | None = None,
    ) -> None:
        self.counts = counts
        self.notes = tuple(notes)
        self.met = met
        self._measure = measure

    def verify(self, model: keras.Model) -> None:
        """Measure the figure of the pruned model itself, and hold it to the budget.

        Raises:
            StageError: it is more than was asked for.
        """
        if self.met is None or self._measure is None:
            return
        self.met = replace(self.met, after=self._measure(model))
        if self.met.after > self.met.limit:
            raise StageError(
                f"{self.met.figure}: {self.met.after:,.0f} are left of the pruned model, and at "
                f"most {self.met.limit:,.0f} were to be",
                subject="prune",
                hint=f"ask for {2 * self.met.limit - self.met.after:,.0f}",
            )


def find_target(
    graph: ChannelGraph, config: PruneConfig, context: StageContext, allocate: Allocate
) -> Target:
    """Return how many channels of each group go.

    Budgets are met by the figure that the report gives: `macs` are counted in the TFLite file,
    `file_bytes` and `arena_bytes` come from real conversions.

    Raises:
        StageError: a budget that even one channel per group exceeds, or that is met already.
        RecipeError: a pattern in `ratios` that fits no group.
    """
    for name in ("macs", "parameters", "file_bytes", "arena_bytes"):
        if getattr(config, name) is not None:
            return _budget(name, graph, config, context, allocate)
    if config.allocation not in ("auto", "uniform") and not config.ratios:
        total = sum(len(group) for group in graph.groups)
        left = total - removed_count(total, config.ratio or 0.0)
        return Target(by_budget(graph, channels_left(graph), left, "ratio", allocate))
    return Target(by_ratios(graph.groups, config.ratios, config.ratio or 0.0, config.round_to))


def _budget(
    name: str, graph: ChannelGraph, config: PruneConfig, context: StageContext, allocate: Allocate
) -> Target:
    context.phase(f"measuring {name}")
    figure = _figure(name, config, context)
    weights = _as_after_training(weights_of(graph), config)

    left = _remembered(lambda keep: figure.measure(rebuild(graph, keep, weights)))
    asked = getattr(config, name)
    everything = graph.keep(np.array([]))
    limit = asked if name.endswith("bytes") else math.floor(asked * left(everything))
    if name == "arena_bytes":
        counts = by_budget(graph, left, limit, name, allocate)
        nothing, removed = np.array([]), any_channels(graph, counts)
        before, after = left(graph.keep(nothing)), left(graph.keep(removed))
        measured = None
    else:
        planned = _planned(name, graph, config)
        fit = by_figure(graph, name, limit, allocate, left, planned)
        counts, before, after, measured = fit.counts, fit.before, fit.after, fit.measurements
    _refuse_nothing_to_do(name, limit, before)
    met = BudgetMet(name, limit, before, after, figure.precision, measured)
    notes = [_COMPACTED.format(100 * _share(config))] if config.arena == "compacted" else []
    return Target(counts, notes, met, figure.measure)


@dataclass(frozen=True)
class _Figure:
    """How a figure of a model is measured, and of which file."""

    measure: Callable[[keras.Model], float]
    precision: str | None = None


def _figure(name: str, config: PruneConfig, context: StageContext) -> _Figure:
    if name == "parameters":
        return _Figure(lambda model: float(model.count_params()))
    if name == "macs":
        return _Figure(lambda model: _macs(convert(model, "float32").content))
    convert_to = conversion(config, context)
    if name == "file_bytes":
        return _Figure(lambda model: float(len(convert_to(model))), config.file_precision)
    limit = config.arena_bytes
    if config.arena == "compacted" and limit is not None:
        share = _share(config)
        return _Figure(
            lambda model: float(smallest_arena(convert_to(model), limit, share)),
            config.file_precision,
        )
    return _Figure(lambda model: _arena(convert_to(model)), config.file_precision)


def _share(config: PruneConfig) -> float:
    """Return the share of multiply-accumulates that compaction may add."""
    return DEFAULT_EXTRA_MACS if config.max_extra_macs is None else config.max_extra_macs


def _planned(name: str, graph: ChannelGraph, config: PruneConfig) -> Cost:
    """Return what arithmetic makes of a figure."""
    if name == "macs":
        return graph.macs
    width = 1
    if name == "file_bytes":
        width = 4 if config.file_precision == "float32" else 1
    return lambda keep: float(width * graph.parameters(keep))


def _macs(content: bytes) -> float:
    """Return the report's figure of a float32 file.

    Raises:
        StageError: the file has a loop whose rounds nobody can tell.
    """
    macs: int | None = count_macs(content)
    if macs is None:
        raise StageError(
            "macs: the multiply-accumulates of this model cannot be counted: it has a loop whose "
            "number of rounds the file does not tell",
            subject="prune",
            hint="give a budget of parameters or file_bytes, or a ratio",
        )
    return float(macs)


def _arena(content: bytes) -> float:
    with tempfile.TemporaryDirectory(prefix="shrink-arena-") as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(content)
        figure = arena_bytes(path)
    if figure.value is None:
        raise StageError(
            f"arena_bytes: {figure.reason}",
            subject="prune",
            hint="prune to macs or file_bytes instead, or set file_precision: int8",
        )
    return float(figure.value)


def _as_after_training(weights: Weights, config: PruneConfig) -> Weights:
    """Return weights as the fine-tuning will leave them, for what files of them take."""
    if not config.passes:
        return weights
    random = np.random.default_rng(0)
    return {name: parted(arrays, random) for name, arrays in weights.items()}


def _remembered(cost: Cost) -> Cost:
    known: dict[bytes, float] = {}

    def remembered(keep: np.ndarray) -> float:
        key = keep.tobytes()
        if key not in known:
            known[key] = cost(keep)
        return known[key]

    return remembered


def _refuse_nothing_to_do(name: str, limit: float, before: float) -> None:
    if before <= limit:
        raise StageError(
            f"{name}: the model has {before:,.0f}, and at most {limit:,.0f} were to be left: there "
            "is nothing to prune",
            subject="prune",
            hint="lower the budget, or leave the stage out",
        )


def saved(graph: ChannelGraph, config: PruneConfig) -> Cost:
    """Return the cost that groups are pruned to save: the budget's, or what stands for it."""
    if config.macs is not None:
        return graph.macs
    return channels_left(graph) if config.ratio is not None else graph.parameters


def channels_left(graph: ChannelGraph) -> Cost:
    """Return how many channels of all groups are left, by what stays."""
    channels = np.concatenate([group.channels for group in graph.groups])
    return lambda keep: float(keep[channels].sum())


def conversion(config: PruneConfig, context: StageContext) -> Callable[[keras.Model], bytes]:
    """Return how to make a model's TFLite file: as converted, or as `quantize` makes it of int8."""
    if config.file_precision == "float32":
        return lambda model: convert(model, "float32").content
    data, seed = context.dataset, context.training.seed
    examples = CalibrationExamples(data.train, _CALIBRATION, seed, data.input_names)
    # The larger of the two files that `auto` chooses from, by weights that are not there yet.
    settings = QuantizeConfig(scheme="static_wi8_ai8", dense_scales="channel")
    return lambda model: static_int8(FloatModel(model), examples, settings).content
