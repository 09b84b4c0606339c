"""The goal of a search: limits, objectives, and the order of trials.

The limits are those of the search and, where a figure can be checked on a trial, the recipe's own
gates. A limit on the drop of the main metric is kept with confidence: the best of many noisy trials
is best in part by chance, so the upper confidence bound of a trial's drop on the validation split
decides, not the drop itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shrink.base.figures import figure_of, format_value, target_of
from shrink.contract.job import Outline
from shrink.contract.report import Figures, GateResult
from shrink.contract.result import Evidence
from shrink.contract.search import Trial
from shrink.recipe.search_config import SearchConfig
from shrink.report.config import Gate
from shrink.report.deltas import score_interval

SIZE, ARENA, LATENCY = "tflite_bytes", "arena_bytes", "p50_ms"
MAX_DROP = "max_drop"
LATENCIES = (LATENCY, "p90_ms")
UNTRAINED = (SIZE, ARENA, "macs", "parameters", "arena_estimate_bytes")
"""Figures that are known of a model before it is trained."""
SIZE_TOLERANCE = 0.1
"""Fraction by which training may reduce sizes that are not exact before it."""
CONFIDENCE = 0.95
"""One-sided, of the bound on a drop."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Goal:
    """Limits and objectives.

    Attributes:
        metric: the main metric.
        limits: the most that a figure may be, by its name.
        max_drop: what the metric may lose against the baseline; None for no limit.
        objectives: figures to optimise; the first decides, and the others where it is equal,
            unless there are several to be traded.
        smallest: whether the smallest file is wanted where no objective is named.
    """

    metric: str
    limits: Mapping[str, float] = field(default_factory=dict)
    max_drop: float | None = None
    objectives: tuple[str, ...] = ()
    smallest: bool = False

    @property
    def traded(self) -> bool:
        """Whether several objectives count alike: the result is a Pareto front."""
        return len(self.objectives) > 1

    @property
    def ranking(self) -> tuple[str, ...]:
        """The figures that decide which of two feasible trials is better, in their order."""
        if self.objectives:
            return tuple(dict.fromkeys((*self.objectives, SIZE, ARENA, LATENCY)))
        if self.smallest:
            return (SIZE, ARENA, LATENCY, self.metric)
        return (self.metric, SIZE, ARENA, LATENCY)

    @property
    def optimised(self) -> tuple[str, ...]:
        """The figures that are minimised or maximised."""
        return self.objectives if self.traded else self.ranking[:1]

    @property
    def names(self) -> list[str]:
        """The figures beside the metric that limits and objectives are about."""
        named = dict.fromkeys((*self.limits, *self.optimised))
        return [name for name in named if name != self.metric]

    def drop(self, figures: Figures, baseline: Figures) -> float | None:
        """Return what the metric lost against the baseline, positive where it is worse."""
        now, before = figures.get(self.metric), baseline.get(self.metric)
        if now is None or before is None:
            return None
        return before - now if figure_of(self.metric).larger_is_better else now - before

    def drop_bound(self, before: Evidence | None, after: Evidence | None) -> float | None:
        """Return the upper confidence bound of the drop; None without scores of the examples.

        Args:
            before: what the baseline's metric was computed from, by example.
            after: the same of a trial.
        """
        figure = figure_of(self.metric)
        interval = score_interval(before, after, 2 * CONFIDENCE - 1, figure.bounds)
        if interval is None or interval.low is None or interval.high is None:
            return None
        return -interval.low if figure.larger_is_better else interval.high

    def keeps(self, drop: float | None) -> bool:
        """Whether a drop is within the limit; an unknown one is."""
        return self.max_drop is None or drop is None or drop - self.max_drop <= _ROUNDING

    def broken(self, figures: Figures, baseline: Figures) -> tuple[str, ...]:
        """Return the limits that figures exceed; one that is missing exceeds its limit."""
        found = [n for n, limit in self.limits.items() if _exceeds(figures.get(n), limit)]
        if self.max_drop is not None:
            drop = self.drop(figures, baseline)
            found += [MAX_DROP] if drop is None or not self.keeps(drop) else []
        return tuple(found)

    def broken_by(self, outline: Outline) -> tuple[str, ...]:
        """Return the limits that sizes exceed before training.

        A size that is None, such as the arena of a file that TFLite Micro cannot load, exceeds its
        limit; a size that is not in the outline is unknown.
        """
        factor = 1 + tolerance_of(outline)
        return tuple(
            name
            for name, limit in self.limits.items()
            if name in UNTRAINED
            and name in outline.figures
            and _exceeds(outline.figures[name], limit * factor)
        )

    def key(self, figures: Figures) -> tuple[float, ...]:
        """Return what feasible trials are sorted by, the best first."""
        return tuple(cost_of(name, figures.get(name)) for name in self.ranking)

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the best feasible trial.

        Where a drop is limited, the best of those that keep it with confidence; if none does, the
        one that is nearest to it.
        """
        able = [one for one in trials if one.feasible]
        if safe := [one for one in able if self.keeps(one.drop_bound)]:
            return min(safe, key=lambda one: (self.key(one.figures), one.number))
        return min(
            able, key=lambda one: (one.drop_bound, self.key(one.figures), one.number), default=None
        )

    def front(self, trials: Sequence[Trial]) -> tuple[int, ...]:
        """Return the numbers of the trials on the Pareto front, the smallest file first."""
        names = self.objectives if self.traded else (self.metric, SIZE)
        able = [one for one in trials if one.feasible]
        costs = {one.number: [cost_of(n, one.figures.get(n)) for n in names] for one in able}
        size = {one.number: one.figures.get(SIZE) or math.inf for one in able}
        front = undominated([*costs.values()])
        return tuple(sorted((n for n in costs if costs[n] in front), key=lambda n: (size[n], n)))

    def in_words(self) -> str:
        """Return the limits as text: `tflite_bytes <= 40.0 KB, accuracy drop <= 1 points`."""
        words = [f"{n} <= {figure_of(n).text(limit)}" for n, limit in self.limits.items()]
        if self.max_drop is not None:
            unit = figure_of(self.metric).unit
            shown = format_value(self.max_drop, "points" if unit == "fraction" else unit)
            words.append(f"{self.metric} drop <= {shown}")
        return ", ".join(words) or "no limits"


def goal_of(
    config: SearchConfig, gates: Mapping[str, Gate], last: str, metric: str, baseline: Figures
) -> Goal:
    """Return what a search optimises, within its own limits and those of the recipe's gates.

    Gates on sizes, latency and the main metric become limits. All others, those on an earlier
    stage, and those with a confidence are checked in each trial's report: see `broken_gates`.

    Args:
        config: the `search` section.
        gates: of the recipe.
        last: its last stage.
        metric: the main metric.
        baseline: figures on the validation split.
    """
    limits: dict[str, float] = config.constraints.model_dump(exclude_none=True)
    max_drop = limits.pop(MAX_DROP, None)
    drops = [] if max_drop is None else [max_drop]
    before = baseline.get(metric)
    for name, gate in gates.items():
        target = target_of(name)
        if target is None or gate.level != "fail" or gate.against or gate.confidence:
            continue
        if gate.stage not in (None, last):
            continue
        figure, limit = target.figure.name, float(gate.limit)
        if gate.ratio is not None:
            reference = baseline.get(figure)
            if reference is None:
                continue
            limit = gate.ratio * reference
        if figure == metric and target.kind in ("drop", "rise"):
            drops.append(limit)
        elif figure == metric and target.kind == "figure" and before is not None:
            drops.append(cost_of(metric, limit) - cost_of(metric, before))
        elif target.kind == "figure" and figure in (*UNTRAINED, *_measured_latencies(config)):
            limits[figure] = min(limit, limits.get(figure, math.inf))
    return Goal(metric, limits, min(drops, default=None), config.objectives, max_drop is not None)


def is_timed(config: SearchConfig, gates: Mapping[str, Gate]) -> bool:
    """Whether the latency of trials is needed."""
    if config.constraints.p50_ms is not None or LATENCY in config.objectives:
        return True
    return any(name in _measured_latencies(config) for name in gates)


def runs_in_micro(config: SearchConfig, gates: Mapping[str, Gate]) -> bool:
    """Whether TFLite Micro is to load the file: its arena is limited or optimised."""
    return config.constraints.arena_bytes is not None or ARENA in (*config.objectives, *gates)


def _measured_latencies(config: SearchConfig) -> tuple[str, ...]:
    """Return the latencies that a gate may be about: those of this host."""
    return LATENCIES if config.latency is None else ()


def broken_gates(results: Sequence[GateResult]) -> list[str]:
    """Return the gates that a trial's report misses, without those it does not measure.

    A size that is None, such as the arena of a file that TFLite Micro cannot load, is a miss.
    """
    missed = []
    for one in results:
        target = target_of(one.name)
        measured = one.value is not None or (target is not None and target.figure.name in UNTRAINED)
        if one.judged and not one.passed and one.level == "fail" and measured:
            missed.append(one.name)
    return missed


def tolerance_of(outline: Outline | None) -> float:
    """Return the fraction by which training may still reduce the sizes of an outline."""
    return 0.0 if outline is None or outline.exact else SIZE_TOLERANCE


def _exceeds(value: float | None, limit: float) -> bool:
    return value is None or value > limit


def cost_of(name: str, value: float | None) -> float:
    """Return a figure such that less is better; infinite where it is None."""
    if value is None:
        return math.inf
    return -value if figure_of(name).larger_is_better else value


def undominated(points: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """Return the points that no other is at least as good as in every cost."""

    def dominates(other: Sequence[float], mine: Sequence[float]) -> bool:
        return other != mine and all(a <= b for a, b in zip(other, mine, strict=True))

    return [mine for mine in points if not any(dominates(other, mine) for other in points)]
