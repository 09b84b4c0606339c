"""Winner's optimism is that of an independent bootstrap, and nothing without a choice."""

from __future__ import annotations

import random
import statistics

import pytest

from shrink.contract.searched import Trial
from shrink.search.goal import Goal
from shrink.search.optimism import luck_of

GOAL = Goal("accuracy")
COUNT, POINTS = 100, 12


def scored(seed: int) -> list[float]:
    drawn = random.Random(seed)
    return [float(drawn.random() < 0.9) for _ in range(COUNT)]


def trial_of(number: int, scores: list[float]) -> Trial:
    return Trial(
        number=number,
        settings={"a": number},
        figures={"accuracy": statistics.fmean(scores)},
        feasible=True,
        status="done",
    )


def test_luck_is_what_an_independent_bootstrap_finds() -> None:
    evidence = {n: scored(n) for n in range(POINTS)}
    trials = [trial_of(n, scores) for n, scores in evidence.items()]
    luck = luck_of(trials, evidence, None, GOAL, resamples=4000)
    assert luck is not None
    drawn, gains = random.Random(7), []
    for _ in range(4000):
        places = [drawn.randrange(COUNT) for _ in range(COUNT)]
        means = {n: statistics.fmean(s[i] for i in places) for n, s in evidence.items()}
        winner = max(means, key=lambda n: (means[n], -n))
        gains.append(means[winner] - statistics.fmean(evidence[winner]))
    error = statistics.stdev(gains) / len(gains) ** 0.5
    assert luck.optimism == pytest.approx(statistics.fmean(gains), abs=6 * error)
    assert luck.optimism > 0.01


def test_choosing_between_equal_points_is_no_luck() -> None:
    scores = scored(0)
    evidence = dict.fromkeys(range(3), scores)
    luck = luck_of([trial_of(n, scores) for n in range(3)], evidence, None, GOAL)
    assert luck is not None
    assert luck.optimism == pytest.approx(0, abs=0.005)
    assert luck.chosen_again == 1


def test_there_is_no_luck_without_a_choice_or_with_other_examples() -> None:
    one, other = scored(1), scored(2)[:-1]
    assert luck_of([trial_of(0, one)], {0: one}, None, GOAL) is None
    trials = [trial_of(0, one), trial_of(1, other)]
    assert luck_of(trials, {0: one, 1: other}, None, GOAL) is None
