"""Rungs: a point is trained for a part of its epochs first, and goes on only where that promises.

Asynchronous successive halving in the form that stops (Li et al. 2020; Optuna has it as
`SuccessiveHalvingPruner`): a point that reaches a rung goes on at once if it is in the best third
of all that have reached it so far, whichever worker they are of, so that nobody waits. With
several figures to be good at, the third is taken by non-dominated sorting, and within a front by
distance (Schmucker et al. 2021).

A learning rate that falls over the epochs makes a short training no beginning of a long one: the
next rung trains from the start, and a rung costs its share of the epochs on top.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shrink.base.figures import figure_of
from shrink.base.foreign import Json
from shrink.contract.report import Figures, Report
from shrink.contract.searched import Trial
from shrink.recipe.plan import Plan
from shrink.search.goal import UNTRAINED, Goal, cost_of

SHARES = (1 / 9, 1 / 3)
"""Of the epochs, where nothing else is asked for: each rung has three times those before it."""
_REDUCTION = 3
_PAYS = 0.5
"""A rung that takes more than this share of a whole point is left out."""
_FEWEST_SAMPLES = 100
_EPOCHS, _SAMPLES = "epochs", "calibration_samples"


def shortened(stages: Sequence[Json], plan: Plan, share: float) -> list[Json]:
    """Return stages with a share of the epochs and calibration examples, the baseline as it is.

    Args:
        stages: of a recipe.
        plan: of the same recipe.
        share: of the epochs; at least one of a stage that trains is left. Where none has more than
            that, the stages stay as they are.
    """
    steps = [step for step in plan.steps if step.config is not None]
    found, is_shorter = list[Json](), False
    for stage, step in zip(stages, steps, strict=True):
        if step.name == plan.baseline.name or step.config is None:
            found.append(stage)
            continue
        given = stage[step.kind] if isinstance(stage, dict) else None
        settings = dict(given) if isinstance(given, dict) else {}
        least = int(getattr(step.config, "steps", 1))
        if step.epochs > least:
            settings[_EPOCHS] = max(least, round(step.epochs * share))
            is_shorter = True
        samples = getattr(step.config, _SAMPLES, 0)
        if samples > _FEWEST_SAMPLES:
            settings[_SAMPLES] = max(_FEWEST_SAMPLES, round(samples * share))
        found.append({step.kind: settings})
    return found if is_shorter else [*stages]


def training_share(report: Report) -> float | None:
    """Return the share of a run's seconds that its stages behind the baseline trained for.

    None where a stage came from the store, which tells nothing of a point that has to make it.
    """
    stages = report.stages[1:]
    whole = sum(one.duration_s or 0.0 for one in stages)
    if not whole or any(one.status != "done" for one in stages):
        return None
    examples = None if report.data is None else (report.data.examples or {}).get("train")
    records = [one.training for one in stages if one.training is not None]
    trained = sum(one.seconds(examples) or 0.0 for one in records)
    return min(1.0, trained / whole)


def pays(share: float, training: float, trials: Sequence[Trial]) -> bool:
    """Whether a rung takes clearly less than a whole point.

    Args:
        share: of the epochs.
        training: the share of a point's seconds that are training.
        trials: of which those that had both a rung and their end tell.
    """
    if 1 - training + share * training > _PAYS:
        return False
    ratios = sorted(
        rung.duration_s / trial.duration_s
        for trial in trials
        if trial.status == "done" and trial.duration_s
        for rung in trial.rungs
        if math.isclose(rung.share, share)
    )
    return not ratios or ratios[len(ratios) // 2] <= _PAYS


@dataclass(frozen=True)
class Reached:
    """A point on a rung.

    Attributes:
        number: of the trial.
        figures: there, of validation examples.
    """

    number: int
    figures: Figures


@dataclass(frozen=True)
class Ladder:
    """Says which points go on.

    Attributes:
        goal: what is looked for.
        baseline: figures on validation examples.
    """

    goal: Goal
    baseline: Figures

    def goes_on(self, mine: Reached, others: Sequence[Reached], gain: float | None) -> bool:
        """Whether a point is worth more epochs.

        Args:
            mine: the point.
            others: that have reached the same rung.
            gain: the most that the metric of a point has improved from here to its end; None
                where no point has been trained to its end yet.
        """
        if self.excess(mine.figures, gain) > 0:
            return False
        able = [one for one in others if self.excess(one.figures, gain) <= 0]
        allowed = math.ceil((1 + len(others)) / _REDUCTION)
        return mine.number in self._chosen([mine, *able], allowed)

    def excess(self, figures: Figures, gain: float | None) -> float:
        """Return by how much the drop would be too large at the end, at the most hopeful."""
        goal = self.goal
        drop = goal.drop(figures, self.baseline)
        if goal.max_drop is None or gain is None or drop is None or goal.keeps(drop - gain):
            return 0.0
        return drop - gain - goal.max_drop

    def _names(self) -> tuple[str, ...]:
        goal = self.goal
        if goal.traded:
            return goal.objectives
        first = goal.ranking[0]
        return (goal.metric, first) if first in UNTRAINED else (first,)

    def _chosen(self, points: Sequence[Reached], count: int) -> set[int]:
        """Return the numbers of the best points, front by front."""
        names = self._names()
        left = {one.number: _costs(one.figures, names) for one in points}
        chosen = set[int]()
        while left and len(chosen) < count:
            front = {n: one for n, one in left.items() if not _is_beaten(one, left.values())}
            chosen |= set(_spread(front, count - len(chosen)))
            left = {n: one for n, one in left.items() if n not in front}
        return chosen


def most_gained(share: float, metric: str, trials: Sequence[Trial]) -> float | None:
    """Return the most that a metric has improved from a rung to the end of a point."""
    sign = 1.0 if figure_of(metric).larger_is_better else -1.0
    gains = [
        sign * (after - before)
        for trial in trials
        if trial.status == "done" and (after := trial.figures.get(metric)) is not None
        for rung in trial.rungs
        if math.isclose(rung.share, share) and (before := rung.figures.get(metric)) is not None
    ]
    return max(gains, default=None)


def _costs(figures: Figures, names: Sequence[str]) -> tuple[float, ...]:
    return tuple(cost_of(name, figures.get(name)) for name in names)


def _is_beaten(mine: tuple[float, ...], others: Iterable[tuple[float, ...]]) -> bool:
    return any(
        other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in others
    )


def _spread(front: Mapping[int, tuple[float, ...]], count: int) -> list[int]:
    """Return points of a front that are far apart, from the one with the least first cost on."""
    spans = [max(x) - min(x) or 1.0 for x in zip(*front.values(), strict=True)]

    def distance(one: int, other: int) -> float:
        pairs = zip(front[one], front[other], spans, strict=True)
        return math.sqrt(sum(((a - b) / span) ** 2 for a, b, span in pairs))

    chosen = [min(front, key=lambda n: (front[n], n))]
    while len(chosen) < min(count, len(front)):
        rest = [n for n in front if n not in chosen]
        chosen.append(max(rest, key=lambda n: (min(distance(n, c) for c in chosen), -n)))
    return chosen
