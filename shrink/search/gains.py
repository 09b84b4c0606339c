"""What points that were not trained are expected to gain, by what a search looks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from shrink.base.figures import LOSS, figure_of
from shrink.base.metrics import metric_of
from shrink.contract.report import Figures
from shrink.contract.searched import Trial
from shrink.search.acquisition import (
    expected_hypervolume_gain,
    expected_improvement,
    probability_within,
)
from shrink.search.goal import UNTRAINED, Goal, cost_of
from shrink.search.surrogate import Described, predict

TRAINED = ("done", "halted")
"""Statuses of points that say something of their metric."""
_BEYOND = 0.1
"""Of the baseline's metric, by which the worst cost that counts is beyond the worst one seen."""


def can_predict(goal: Goal) -> bool:
    """Whether all that a goal asks for but its metric is known of a point untrained."""
    return set(names_known(goal)) <= set(UNTRAINED)


def names_known(goal: Goal) -> list[str]:
    """Return the figures that a goal asks for beside its metric."""
    asked = (*goal.limits, *(goal.objectives or goal.ranking[:1]))
    return [name for name in dict.fromkeys(asked) if name != goal.metric]


def gains_of(
    goal: Goal, baseline: Figures, trials: Sequence[Trial], looked: Sequence[Described]
) -> list[float]:
    """Return what points are expected to gain, in whatever the goal counts in.

    Nothing where the baseline's metric is not defined, as nothing can be compared with it.

    Args:
        goal: what is looked for.
        baseline: figures on validation examples.
        trials: that were trained, whole or for a part of their epochs.
        looked: points that were not, with what is known of them.
    """
    if not looked or baseline.get(goal.metric) is None:
        return [0.0] * len(looked)
    seen = [(Described({}, baseline), cost_of(goal.metric, baseline.get(goal.metric)))]
    for one in trials:
        figures = one.rungs[-1].figures if one.status == "halted" and one.rungs else one.figures
        value = figures.get(goal.metric)
        if one.status in TRAINED and value is not None:
            seen.append((Described(one.settings, one.figures), cost_of(goal.metric, value)))
    costs = [cost for _, cost in seen]
    means, deviations = predict([point for point, _ in seen], costs, looked, names_known(goal))
    gain = _gain_of(goal, baseline, trials, costs)
    return [
        gain(one.figures, float(mean), float(deviation))
        for one, mean, deviation in zip(looked, means, deviations, strict=True)
    ]


def _gain_of(
    goal: Goal, baseline: Figures, trials: Sequence[Trial], costs: Sequence[float]
) -> Callable[[Figures, float, float], float]:
    """Return what says how much a point is expected to gain, by its known figures and its cost."""
    metric, able = goal.metric, [t for t in trials if t.status == "done" and t.feasible]
    most = None if goal.max_drop is None else costs[0] + goal.max_drop

    def within(mean: float, deviation: float) -> float:
        return 1.0 if most is None else probability_within(most, mean, deviation)

    first = goal.ranking[0]
    if not goal.traded and first == metric:
        best = min(
            (cost_of(metric, t.figures.get(metric)) for t in able), default=_worst(goal, costs)
        )
        return lambda _, mean, spread: (
            within(mean, spread) * expected_improvement(best, mean, spread)
        )
    if not goal.traded:
        sizes = [cost_of(first, t.figures.get(first)) for t in able] or [_size(baseline, first)]
        return lambda figures, mean, spread: (
            within(mean, spread) * max(0.0, min(sizes) - _size(figures, first))
        )
    axes = [name for name in goal.objectives if name != metric]
    is_judged = metric in goal.objectives
    known = [baseline, *(t.figures for t in able)]
    ends = {n: goal.limits.get(n) or max(_size(figures, n) for figures in known) for n in axes}

    def place(figures: Figures) -> list[float]:
        return [_size(figures, name) / ends[name] for name in axes]

    front = [
        (place(t.figures), cost_of(metric, t.figures.get(metric)) if is_judged else 0.0)
        for t in able
    ]
    worst = min(_worst(goal, costs), math.inf if most is None else most)
    reference = ([1.0] * len(axes), worst if is_judged else 1.0)

    def volume(figures: Figures, mean: float, spread: float) -> float:
        judged = (mean, spread) if is_judged else (0.0, 0.0)
        gain = expected_hypervolume_gain(place(figures), *judged, front, reference)
        return gain if is_judged else within(mean, spread) * gain

    return volume


def _size(figures: Figures, name: str) -> float:
    """Return a figure that is known untrained, at least 1 to divide by."""
    return max(1.0, float(figures.get(name) or 0.0))


def _worst(goal: Goal, costs: Sequence[float]) -> float:
    """Return the worst cost that counts: the end of the metric's range, else beyond all seen."""
    info = None if goal.metric == LOSS else metric_of(goal.metric)
    ends = None if info is None else info.info.range
    better = figure_of(goal.metric).larger_is_better
    end = None if ends is None else (-ends[0] if better else ends[1])
    if end is not None and abs(end) < float("inf"):
        return max(end, *costs)
    return max(costs) + _BEYOND * abs(costs[0])
