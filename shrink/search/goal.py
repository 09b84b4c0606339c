"""What a search looks for: limits, objectives, and which of two points is better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shrink.base.figures import figure_of, format_value
from shrink.contract.report import Figures
from shrink.contract.searched import Trial

SIZE, ARENA, LATENCY, MACS = "tflite_bytes", "arena_bytes", "p50_ms", "macs"
MAX_DROP = "max_drop"
UNTRAINED = (SIZE, ARENA, MACS, "parameters", "arena_estimate_bytes")
"""Figures that are known of a model before it is trained."""
SLACK = 0.1
"""Share by which what training decides may still make a file smaller."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Goal:
    """Limits and objectives.

    Attributes:
        metric: the main one.
        limits: the most that a figure may be, by its name.
        max_drop: what the metric may lose against the baseline; None for no limit.
        objectives: figures; the first decides, the others where it is equal, unless there are
            several to be traded.
        traded: whether all objectives count alike: the result is a front.
    """

    metric: str
    limits: Mapping[str, float] = field(default_factory=dict)
    max_drop: float | None = None
    objectives: tuple[str, ...] = ()
    traded: bool = False

    @property
    def ranking(self) -> tuple[str, ...]:
        """The figures that decide which of two feasible points is better, in their order."""
        if self.objectives:
            rest = (SIZE, ARENA, LATENCY)
            return tuple(dict.fromkeys((*self.objectives, *rest)))
        if self.max_drop is not None:
            return (SIZE, ARENA, LATENCY, self.metric)
        return (self.metric, SIZE, ARENA, LATENCY)

    @property
    def directed(self) -> tuple[str, ...]:
        """The figures that the sampler is told of."""
        return self.objectives if self.traded else self.ranking[:1]

    @property
    def asks_of_untrained(self) -> bool:
        """Whether what is known of a point untrained decides anything."""
        return any(name in UNTRAINED for name in (*self.limits, self.ranking[0]))

    def drop(self, figures: Figures, baseline: Figures) -> float | None:
        """Return what the metric lost against the baseline, positive where it is worse."""
        now, before = figures.get(self.metric), baseline.get(self.metric)
        if now is None or before is None:
            return None
        return before - now if figure_of(self.metric).larger_is_better else now - before

    def excesses(self, figures: Figures, baseline: Figures) -> dict[str, float]:
        """Return by how much each limit is broken, as a share of it; at most 0 where it holds.

        A figure that is not there, but limited, is as far out as can be; before training, what is
        not known yet is left out: see `known_excesses`.
        """
        found = {name: _share(figures.get(name), limit) for name, limit in self.limits.items()}
        if self.max_drop is not None:
            drop = self.drop(figures, baseline)
            found[MAX_DROP] = 1.0 if drop is None else drop - self.max_drop - _ROUNDING
        return found

    def keeps(self, drop: float) -> bool:
        """Whether a drop is within the limit; counts of examples round: 0.0100000001 is 0.01."""
        return self.max_drop is None or drop - self.max_drop <= _ROUNDING

    def known_excesses(self, figures: Figures, slack: float = 0.0) -> dict[str, float]:
        """Return the same of the figures that are known without training.

        Args:
            figures: those that are known.
            slack: share by which training may still make them smaller.
        """
        return {
            name: _share(value, limit * (1 + slack))
            for name, limit in self.limits.items()
            if name in UNTRAINED and (value := figures.get(name)) is not None
        }

    def cannot_win(self, figures: Figures, best: Figures, slack: float = 0.0) -> bool:
        """Whether a point is no better than the best, by what is known of it without training.

        Args:
            figures: those that are known of it.
            best: all of the best one.
            slack: share by which training may still make its own smaller.
        """
        first = self.ranking[0]
        if self.traded or first not in UNTRAINED or best.get(first) is None:
            return False
        for name in self.ranking:
            value, other = figures.get(name), best.get(name)
            if name == self.metric or (value is None and other is None):
                continue
            if value is None or other is None or value < other * (1 + slack):
                return False
            if value > other * (1 + slack):
                return True
        return True

    def key(self, figures: Figures) -> tuple[float, ...]:
        """Return what feasible points are sorted by, the best first."""
        return tuple(cost_of(name, figures.get(name)) for name in self.ranking)

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the best feasible trial."""
        able = [one for one in trials if one.feasible and one.status == "done"]
        return min(able, key=lambda one: (self.key(one.figures), one.number), default=None)

    def front(self, trials: Sequence[Trial]) -> tuple[int, ...]:
        """Return the numbers of feasible trials that nothing beats, from the smallest file."""
        names = self.objectives if self.traded else (self.metric, SIZE)
        able = [one for one in trials if one.feasible and one.status == "done"]
        points = {one.number: [cost_of(n, one.figures.get(n)) for n in names] for one in able}

        def beaten(number: int) -> bool:
            mine = points[number]
            return any(
                other != mine and all(a <= b for a, b in zip(other, mine, strict=True))
                for other in points.values()
            )

        size = {one.number: one.figures.get(SIZE) or math.inf for one in able}
        return tuple(sorted((n for n in points if not beaten(n)), key=lambda n: (size[n], n)))

    def in_words(self) -> str:
        """Return the limits for people: `tflite_bytes <= 40.0 KB, accuracy drop <= 1 points`."""
        words = [f"{n} <= {figure_of(n).text(limit)}" for n, limit in self.limits.items()]
        if self.max_drop is not None:
            unit = figure_of(self.metric).unit
            shown = format_value(self.max_drop, "points" if unit == "fraction" else unit)
            words.append(f"{self.metric} drop <= {shown}")
        return ", ".join(words) or "no limits"


def _share(value: float | None, limit: float) -> float:
    return 1.0 if value is None else value / limit - 1


def cost_of(name: str, value: float | None) -> float:
    """Return a figure such that less is better; infinite where it is not there."""
    if value is None:
        return math.inf
    return -value if figure_of(name).larger_is_better else value
