"""What points that were not trained are expected to gain, by what a search looks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from shrink.base.figures import LOSS, figure_of
from shrink.base.metrics import metric_of
from shrink.contract.report import Figures
from shrink.contract.searched import Trial
from shrink.search.acquisition import (
    expected_hypervolume_gain,
    expected_improvement,
    probability_within,
)
from shrink.search.goal import Goal, cost_of
from shrink.search.rungs import most_gained
from shrink.search.surrogate import Described, predict

TRAINED = ("done", "halted")
"""Statuses of points that say something of their metric."""


def names_known(goal: Goal) -> list[str]:
    """Return the figures that a goal asks for beside its metric."""
    asked = (*goal.limits, *(goal.objectives or goal.ranking[:1]))
    return [name for name in dict.fromkeys(asked) if name != goal.metric]


def gains_of(
    goal: Goal,
    baseline: Figures,
    trials: Sequence[Trial],
    looked: Sequence[Described],
    running: Sequence[Described] = (),
    expected: Mapping[int, float] | None = None,
    guess: float | None = None,
) -> list[float]:
    """Return what points are expected to gain, in whatever the goal counts in.

    Nothing where the baseline's metric is not defined, as nothing can be compared with it.

    Args:
        goal: what is looked for.
        baseline: figures on validation examples.
        trials: that were trained, whole or for a part of their epochs.
        looked: points that were not, with what is known of them.
        running: points that others train now, taken to become what is expected of them (Ginsbourger
            et al. 2010, the "kriging believer").
        expected: of trials by number, as that of points: see `Described`.
        guess: the metric of a guess, where it is known: of a front what is no better counts for
            nothing, unless the drop allows for it.
    """
    if not looked or baseline.get(goal.metric) is None:
        return [0.0] * len(looked)
    names = names_known(goal)
    seen = [(Described({}, baseline), cost_of(goal.metric, baseline[goal.metric]))]
    seen += _trained(goal.metric, trials, expected or {})
    limit = _worst(goal, seen[0][1])
    points, costs = [one for one, _ in seen], [min(cost, limit) for _, cost in seen]
    able = [
        (one.figures, cost_of(goal.metric, one.figures.get(goal.metric)))
        for one in trials
        if one.status == "done" and one.feasible
    ]
    if running:
        believed, _ = predict(points, costs, running, names)
        points, costs = [*points, *running], [*costs, *map(float, believed)]
        able += [(one.figures, float(c)) for one, c in zip(running, believed, strict=True)]
    means, deviations = predict(points, costs, looked, names)
    gain = _gain_of(goal, baseline, able, _corner(goal, seen[0][1], limit, guess))
    return [
        gain(one.figures, float(mean), float(deviation))
        for one, mean, deviation in zip(looked, means, deviations, strict=True)
    ]


def _trained(
    metric: str, trials: Sequence[Trial], expected: Mapping[int, float]
) -> list[tuple[Described, float]]:
    """Return points with their costs; of halted ones with the most that others gained from there.

    A halted point says nothing before another one has gone from its rung to the end.
    """
    found = []
    for one in trials:
        value = one.figures.get(metric) if one.status == "done" else _hoped(metric, one, trials)
        if value is not None:
            point = Described(one.settings, one.figures, expected.get(one.number, 0.0))
            found.append((point, cost_of(metric, value)))
    return found


def _hoped(metric: str, trial: Trial, trials: Sequence[Trial]) -> float | None:
    if trial.status != "halted" or not trial.rungs:
        return None
    last = trial.rungs[-1]
    reached, gained = last.figures.get(metric), most_gained(last.share, metric, trials)
    if reached is None or gained is None:
        return None
    return reached + (gained if figure_of(metric).larger_is_better else -gained)


def _gain_of(
    goal: Goal, baseline: Figures, able: Sequence[tuple[Figures, float]], worst: float
) -> Callable[[Figures, float, float], float]:
    """Return what says how much a point is expected to gain, by its known figures and its cost.

    Args:
        goal: what is looked for.
        baseline: figures on validation examples.
        able: figures and costs of the points that keep to the limits.
        worst: the highest cost that counts.
    """
    metric, first = goal.metric, goal.ranking[0]
    before = cost_of(metric, baseline[metric])
    most = None if goal.max_drop is None else before + goal.max_drop

    def within(mean: float, deviation: float) -> float:
        return 1.0 if most is None else probability_within(most, mean, deviation)

    if not goal.traded and first == metric:
        best = min((cost for _, cost in able), default=worst)
        return lambda _, mean, spread: (
            within(mean, spread) * expected_improvement(best, mean, spread)
        )
    if not goal.traded:
        known = [value for one, _ in able if (value := one.get(first)) is not None]
        smallest = min(known, default=baseline.get(first) or math.inf)
        return lambda figures, mean, spread: (
            within(mean, spread) * _smaller(smallest, figures.get(first))
        )
    axes = [name for name in goal.objectives if name != metric]
    is_judged = metric in goal.objectives
    front = [
        ([float(one[name] or 0.0) for name in axes], cost if is_judged else 0.0)
        for one, cost in able
        if all(one.get(name) is not None for name in axes)
    ]
    ends = [_end(goal, baseline, name, [at[n] for at, _ in front]) for n, name in enumerate(axes)]
    corner = min(worst, math.inf if most is None else most) if is_judged else 1.0
    front = _undominated([(_scaled(place, ends), cost) for place, cost in front])

    def volume(figures: Figures, mean: float, spread: float) -> float:
        judged = (mean, spread) if is_judged else (0.0, 0.0)
        place = _scaled([float(figures[name] or 0.0) for name in axes], ends)
        reference = ([1.0] * len(axes), corner)
        gain = expected_hypervolume_gain(place, *judged, front, reference)
        return gain if is_judged else within(mean, spread) * gain

    return volume


Place = tuple[list[float], float]
"""The figures of a point that are known untrained, and its cost."""


def _scaled(place: Sequence[float], ends: Sequence[float]) -> list[float]:
    return [value / end for value, end in zip(place, ends, strict=True)]


def _smaller(smallest: float, value: float | None) -> float:
    """Return by how much a figure is below the smallest one, as a share where that is known."""
    if value is None:
        return 0.0
    return max(0.0, smallest - value) if math.isfinite(smallest) else 1 / max(value, 1.0)


def _end(goal: Goal, baseline: Figures, name: str, trained: Sequence[float]) -> float:
    """Return the figure that a front is measured from: the limit, else the baseline's.

    Where there is neither, twice the largest one that was trained.
    """
    end = goal.limits.get(name) or baseline.get(name)
    return max(1.0, float(end or 2 * max(trained, default=1.0)))


def _undominated(points: Sequence[Place]) -> list[Place]:
    """Return the points that no other is at least as good as in everything."""

    def is_beaten(mine: Place) -> bool:
        corner = [*mine[0], mine[1]]
        return any(
            [*other[0], other[1]] != corner
            and all(a <= b for a, b in zip([*other[0], other[1]], corner, strict=True))
            for other in points
        )

    return [one for one in points if not is_beaten(one)]


def _worst(goal: Goal, before: float) -> float:
    """Return the highest cost that counts: the end of the metric's range, or twice the baseline's.

    Costs beyond, as of a training that diverged, are taken for it: they would hide all others.
    """
    info = None if goal.metric == LOSS else metric_of(goal.metric)
    ends = None if info is None else info.info.range
    better = figure_of(goal.metric).larger_is_better
    end = None if ends is None else (-ends[0] if better else ends[1])
    if end is not None and math.isfinite(end):
        return end
    return before + max(abs(before), 1e-12)


def _corner(goal: Goal, before: float, worst: float, guess: float | None) -> float:
    """Return the cost from which on a point is worth nothing."""
    if guess is None:
        return worst
    guessed = cost_of(goal.metric, guess)
    return min(guessed, worst) if guessed > before + (goal.max_drop or 0.0) else worst
