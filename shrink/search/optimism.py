"""How much of the best point's metric is luck: winner's optimism, by bootstrap.

The best of many noisy figures is best in part by chance. Validation examples are drawn again with
replacement, the choice is made again on each draw, and what the chosen point scores on the draw is
compared with what it scores on all of them: on average the difference is what choosing adds
(Efron & Tibshirani 1993, chapter 17; Varma & Simon 2006 on choosing settings).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shrink.base.figures import figure_of
from shrink.base.resampled import Resampled
from shrink.contract.report import Figures
from shrink.contract.result import Evidence
from shrink.contract.searched import Luck, Trial
from shrink.search.goal import MAX_DROP, Goal

if TYPE_CHECKING:
    from shrink.base.types import Array

RESAMPLES = 1000
_FEWEST = 2


def luck_of(
    trials: Sequence[Trial],
    evidence: Mapping[int, Evidence],
    baseline: Evidence | None,
    goal: Goal,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Luck | None:
    """Return what choosing among trials adds to the metric of the chosen one.

    Args:
        trials: of the search.
        evidence: of the metric on the validation examples, by the trial's number: scores of the
            examples, or values on resamples of them.
        baseline: the same of the baseline, where a drop is limited.
        goal: by which is chosen.
        resamples: how many.
        seed: of the draws.

    Returns:
        None where fewer than two trials can be chosen among, or nothing is known of examples.
    """
    able = [
        one
        for one in trials
        if one.status == "done" and one.number in evidence and set(one.broken) <= {MAX_DROP}
    ]
    kinds = [evidence[one.number] for one in able] + ([baseline] if baseline is not None else [])
    values = _on_resamples(kinds, resamples, seed)
    best = goal.best(able)
    if len(able) < _FEWEST or values is None or best is None:
        return None
    sign = 1.0 if figure_of(goal.metric).larger_is_better else -1.0
    gains, again = list[float](), 0
    for row in range(values.shape[1]):
        drawn: Figures = {}
        if baseline is not None:
            drawn = {goal.metric: float(values[-1, row])}
        chosen = goal.best(
            [_redrawn(one, float(values[i, row]), drawn, goal) for i, one in enumerate(able)]
        )
        if chosen is None:
            continue
        true = next(one for one in able if one.number == chosen.number)
        now, whole = chosen.figures[goal.metric], true.figures[goal.metric]
        if now is not None and whole is not None and math.isfinite(now):
            gains.append(sign * (now - whole))
            again += chosen.number == best.number
    if not gains:
        return None
    return Luck(
        metric=goal.metric,
        optimism=sum(gains) / len(gains),
        resamples=len(gains),
        chosen_again=again / len(gains),
        trials=len(able),
    )


def _redrawn(trial: Trial, value: float, baseline: Figures, goal: Goal) -> Trial:
    """Return a trial with its metric on a resample, and whether it is feasible there."""
    figures = {**trial.figures, goal.metric: value}
    drop = goal.drop(figures, baseline)
    feasible = goal.max_drop is None or (drop is not None and goal.keeps(drop))
    return replace(trial, figures=figures, feasible=feasible)


def _on_resamples(kinds: Sequence[Evidence], resamples: int, seed: int) -> Array | None:
    """Return the metric of each evidence on each resample, (evidences, resamples), all on the same.

    None where they are not of the same examples.
    """
    import numpy as np

    resampled = [one for one in kinds if isinstance(one, Resampled)]
    if not kinds:
        return None
    if resampled:
        same = len({one.draw for one in resampled}) == 1 and len(resampled) == len(kinds)
        rows = [[math.nan if v is None else v for v in one.replicates] for one in resampled]
        return np.array(rows) if same and rows[0] else None
    scores = [np.asarray(one, dtype=np.float64) for one in kinds]
    if len({one.shape for one in scores}) != 1 or not scores[0].size:
        return None
    count = scores[0].size
    draws = np.random.default_rng(seed).multinomial(count, [1 / count] * count, size=resamples)
    return np.stack(scores) @ draws.T / count
