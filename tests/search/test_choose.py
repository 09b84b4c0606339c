"""Which trial is next: closed forms against integration, and choices that can be told by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from scipy.integrate import quad

from shrink.contract.job import Outline
from shrink.contract.report import Figures
from shrink.contract.search import Trial
from shrink.recipe.plan import Plan
from shrink.search import choose
from shrink.search.candidates import Candidates
from shrink.search.choose import (
    Chooser,
    Features,
    Sizes,
    Steps,
    expected_hypervolume_gain,
    expected_improvement,
    gains_of,
    predicted_values,
    probability_within,
)
from shrink.search.goal import Goal
from shrink.search.space import Settings
from shrink.search.trials import Journal, StartedTrial


def expectation(function: Callable[[float], float], mean: float, deviation: float) -> float:
    def weighted(x: float) -> float:
        density = math.exp(-0.5 * ((x - mean) / deviation) ** 2)
        return function(x) * density / (deviation * math.sqrt(2 * math.pi))

    low, high = mean - 12 * deviation, mean + 12 * deviation
    return float(quad(weighted, low, high, limit=2000, epsabs=1e-13)[0])


@pytest.mark.parametrize(
    ("level", "mean", "deviation"), [(0, 0, 1), (-3, 0, 1), (2, 0.5, 0.25), (-0.97, -0.9, 0.02)]
)
def test_expected_improvement_is_the_mean_of_what_lies_below_the_level(
    level: float, mean: float, deviation: float
) -> None:
    wanted = expectation(lambda x: max(0.0, level - x), mean, deviation)
    assert expected_improvement(level, mean, deviation) == pytest.approx(wanted, abs=1e-9)
    wanted = expectation(lambda x: float(x <= level), mean, deviation)
    assert probability_within(level, mean, deviation) == pytest.approx(wanted, abs=1e-6)


def test_certain_costs_improve_by_their_distance() -> None:
    assert expected_improvement(1.0, 0.25, 0.0) == 0.75
    assert expected_improvement(0.25, 1.0, 0.0) == 0.0
    assert (probability_within(1.0, 1.0, 0.0), probability_within(1.0, 1.1, 0.0)) == (1.0, 0.0)


def dominated(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Return the volume between points and a reference: by inclusion and exclusion."""
    total = 0.0
    for chosen in range(1, 2 ** len(points)):
        taken = [one for number, one in enumerate(points) if chosen >> number & 1]
        worst = [max(values) for values in zip(*taken, strict=True)]
        volume = math.prod(max(0.0, end - w) for end, w in zip(reference, worst, strict=True))
        total += volume if len(taken) % 2 else -volume
    return total


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_the_expected_gain_of_volume_is_the_mean_of_the_volume_gained(axes: int, seed: int) -> None:
    chance = random.Random(f"{axes}{seed}")
    front = [
        [*(chance.uniform(0, 1.2) for _ in range(axes)), -chance.uniform(0, 1)] for _ in range(5)
    ]
    known, reference = [chance.uniform(0, 0.8) for _ in range(axes)], [*[1.0] * axes, 0.0]
    mean, deviation = -0.6, 0.15
    before = dominated(front, reference)
    wanted = expectation(
        lambda x: dominated([*front, [*known, x]], reference) - before, mean, deviation
    )
    found = expected_hypervolume_gain(known, mean, deviation, front, reference)
    assert found == pytest.approx(wanted, rel=1e-5)
    assert found > 0


def test_nothing_is_gained_beyond_the_reference_or_behind_the_front() -> None:
    front = [[0.2, -0.9]]
    assert expected_hypervolume_gain([1.0], -1.0, 0.1, front, [1.0, 0.0]) == 0
    assert expected_hypervolume_gain([0.3], -0.9, 0.0, front, [1.0, 0.0]) == 0
    assert expected_hypervolume_gain([0.1], -0.9, 0.0, front, [1.0, 0.0]) == pytest.approx(0.09)


def point(size: float, **settings: Any) -> Features:
    return Features(settings, {"tflite_bytes": size})


def test_a_metric_that_falls_with_the_size_falls_on_where_nothing_was_trained() -> None:
    trained = [point(size) for size in (100_000, 50_000, 20_000, 8_000)]
    asked = [point(30_000), point(8_000), point(2_000)]
    mean, deviation = predicted_values(
        trained, [-0.90, -0.78, -0.60, -0.45], asked, ["tflite_bytes"]
    )
    assert -0.78 < mean[0] < -0.60
    assert mean[1] == pytest.approx(-0.45, abs=0.03)
    assert mean[2] > -0.40
    assert deviation[1] <= deviation[0] <= deviation[2]


def test_settings_of_any_kind_tell_trials_of_one_size_apart() -> None:
    known = [point(100, scheme=s, list=v) for s in "ab" for v in (["x"], None, {"y": 1})]
    costs = [-0.9 if one.settings["scheme"] == "a" else -0.8 for one in known]
    mean, _ = predicted_values(known, costs, [point(100, scheme="a"), point(100, scheme="b")], [])
    assert mean[0] < -0.87
    assert mean[1] > -0.83


def test_one_known_value_is_expected_everywhere() -> None:
    mean, deviation = predicted_values(
        [Features({}, {})], [-0.9], [point(5), point(9)], ["tflite_bytes"]
    )
    np.testing.assert_allclose(mean, [-0.9, -0.9])
    assert (deviation > 0).all()


BASELINE = {"accuracy": 0.99, "tflite_bytes": 100_000.0}
FRONT = Goal("accuracy", objectives=("accuracy", "tflite_bytes"))
SMALLEST = Goal("accuracy", max_drop=0.02, smallest=True)
BEST = Goal("accuracy", limits={"tflite_bytes": 60_000})


def trial(number: int, size: float, accuracy: float, **more: Any) -> Trial:
    figures: Figures = {"accuracy": accuracy, "tflite_bytes": size}
    given = {"number": number, "settings": {"size": size}, "figures": figures, "feasible": True}
    return Trial(**{**given, "status": "done", **more})


def test_a_training_that_diverged_hides_no_other() -> None:
    goal = Goal("loss", objectives=("loss", "tflite_bytes"))
    baseline = {"loss": 0.3, "tflite_bytes": 100_000.0}

    def of(number: int, size: float, loss: float) -> Trial:
        return trial(number, size, 0, figures={"loss": loss, "tflite_bytes": size})

    known = [of(0, 50_000, 0.31), of(1, 30_000, 0.33), of(2, 60_000, 1e6)]
    looked = [Features({"size": s}, {"tflite_bytes": s}) for s in (40_000.0, 15_000.0)]
    gains = gains_of(goal, baseline, known, looked)
    assert 1 > gains[1] > gains[0] >= 0


def test_nothing_is_expected_where_the_baselines_metric_is_undefined() -> None:
    bare: Figures = {"accuracy": None, "tflite_bytes": 100_000.0}
    looked = [Features({}, {"tflite_bytes": 9_000.0})]
    assert gains_of(FRONT, bare, [trial(0, 50_000, 0.9)], looked) == [0.0]


def test_a_size_may_equal_its_limit_and_be_predicted_above_it() -> None:
    """Limits are judged elsewhere, with the error of a size that is no more than predicted."""
    goal = Goal("accuracy", {"tflite_bytes": 40_000}, 0.05, FRONT.objectives)
    looked = [Features({}, {"tflite_bytes": s}) for s in (10_000.0, 40_000.0, 43_000.0)]
    small, equal, above = gains_of(goal, BASELINE, [], looked)
    assert small > equal > above > 0


def test_a_likelier_trial_is_worth_more_than_a_smaller_one_that_loses_too_much() -> None:
    goal = Goal("accuracy", {"tflite_bytes": 40_000}, 0.02, smallest=True)
    known = [
        trial(n, size, 0.99 - (45_000 - size) * 4e-6) for n, size in enumerate((45_000, 20_000))
    ]
    looked = [Features({"size": s}, {"tflite_bytes": s}) for s in (39_900.0, 22_000.0)]
    likely, unlikely = gains_of(goal, BASELINE, [replace(t, feasible=False) for t in known], looked)
    assert likely > unlikely


def test_what_others_train_promises_less() -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 40_000, 0.98)]
    looked = [Features({"size": 20_000}, {"tflite_bytes": 20_000.0})]
    (alone,) = gains_of(FRONT, BASELINE, known, looked)
    (beside,) = gains_of(FRONT, BASELINE, known, looked, looked)
    assert beside < alone


class Toy(Candidates):
    """Settings whose size and seconds are what they say; those of size 0 are no recipe."""

    def __init__(self, first: Sequence[Settings], sizes: Sequence[float]) -> None:
        settings: list[Settings] = [{"size": size} for size in sizes]
        self.__dict__["space"] = _Space(first, settings)

    def plan(self, settings: Settings, gates: Sequence[str] = ()) -> Plan:
        return cast("Plan", settings)


class _Space:
    def __init__(self, first: Sequence[Settings], sizes: Sequence[Settings]) -> None:
        self._first, self._sizes = first, sizes

    def first(self) -> Iterator[Settings]:
        return iter(self._first)

    def random(self, seed: int) -> Iterator[Settings]:
        return itertools.cycle(self._sizes) if self._sizes else iter(())


class _Steps(Steps):
    def __init__(self) -> None:
        pass

    def seconds(self, plans: Sequence[Any], trained: Sequence[Any]) -> list[float]:
        return [float(one.get("seconds", 1)) for one in plans]


class _Sizes(Sizes):
    def __init__(self, wrong: Mapping[float, Outline]) -> None:
        self.asked = list[float]()
        self._wrong = wrong

    def of(self, plan: Any) -> Outline:
        self.asked.append(plan["size"])
        known = Outline(figures={"tflite_bytes": plan["size"]})
        return self._wrong.get(plan["size"], known)


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[tuple[Any, Any], _Sizes]]:
    """Return what chooses among sizes, and what it asked for."""
    monkeypatch.setattr(choose, "recipe_sha256", lambda settings: choose._text(settings))

    def choosing(
        goal: Goal,
        trials: Sequence[Trial],
        *sizes: float,
        first: Sequence[Settings] = (),
        wrong: Mapping[float, Outline] | None = None,
        left_s: float = math.inf,
        sizing_s: float = 0.0,
    ) -> tuple[tuple[Any, Any], _Sizes]:
        asked = _Sizes(wrong or {})
        asked.mean_s = sizing_s
        chooser = Chooser(goal, BASELINE, Toy(first, sizes), _Steps(), asked, 0)
        entries = [
            StartedTrial(one.settings, choose._text(one.settings), "", 0, one) for one in trials
        ]
        settings = chooser.next(Journal("", entries=entries), left_s)
        return (settings, [*chooser.rejected.values()]), asked

    return choosing


def test_of_a_front_the_size_with_most_room_below_it_is_next(choices: Any) -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 45_000, 0.99), trial(2, 40_000, 0.985)]
    assert choices(FRONT, known, 80_000, 39_000, 20_000, 60_000)[0][0] == {"size": 20_000}


def test_the_smallest_within_the_drop_is_next_where_it_is_likely(choices: Any) -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985), trial(2, 5_000, 0.80, feasible=False)]
    assert choices(SMALLEST, known, 30_000, 17_000, 5_100, 19_900)[0][0] == {"size": 17_000}
    assert choices(SMALLEST, known, 30_000, 50_100, 20_000)[0][0] is None


def test_bounds_of_drops_are_what_a_limited_drop_is_predicted_from(choices: Any) -> None:
    known = [trial(0, 50_000, 0.99, drop_bound=0.004), trial(1, 20_000, 0.98, drop_bound=0.06)]
    sure = [trial(0, 50_000, 0.99, drop_bound=0.0), trial(1, 20_000, 0.98, drop_bound=0.01)]
    looked = [Features({"size": 22_000}, {"tflite_bytes": 22_000.0})]
    (unsafe,) = gains_of(SMALLEST, BASELINE, known, looked)
    (safe,) = gains_of(
        SMALLEST, BASELINE, sure, [Features({"size": 18_000}, {"tflite_bytes": 18e3})]
    )
    assert safe / 2_000 > unsafe / 28_000  # per byte that is gained


def test_candidates_beyond_a_limit_or_that_would_fail_are_rejected(choices: Any) -> None:
    known = [trial(0, 20_000, 0.95), trial(1, 40_000, 0.97)]
    choice, _ = choices(BEST, known, 90_000, 70_000, 59_000)
    assert choice[0] == {"size": 59_000}
    fails = {59_000.0: Outline(figures={}, error="no such layer", stage_failed=True)}
    choice, _ = choices(BEST, known, 59_000, 58_000, wrong=fails)
    assert choice[0] == {"size": 58_000}
    assert [one.settings for one in choice[1]] == [{"size": 59_000}]
    choice, _ = choices(BEST, known, 90_000, 70_000)
    assert choice[0] is None
    assert len(choice[1]) == 2


def test_a_candidate_is_proposed_while_any_promises_more_than_those_that_broke_a_limit(
    choices: Any,
) -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 40_000, 0.98)]
    sizes = [float(size) for size in range(10_000, 11_200, 100)]
    wrong = {s: Outline(figures={}, error="no such layer", stage_failed=True) for s in sizes}
    choice, asked = choices(FRONT, known, *sizes, wrong=wrong)
    assert len(asked.asked) == len(choice[1]) == choose._ROUNDS
    assert choice[0] in [{"size": size} for size in set(sizes) - {*asked.asked}]


def test_only_promising_candidates_are_sized_before_a_trial_is_chosen(choices: Any) -> None:
    known = [trial(n, size, 0.99) for n, size in enumerate((80_000, 60_000, 40_000, 30_000))]
    choice, sizes = choices(FRONT, known, *range(10_000, 29_000, 1_000))
    assert choice[0]["size"] in sizes.asked
    assert len(sizes.asked) <= 2


def test_a_candidate_whose_size_nobody_knows_is_chosen_by_the_predicted_one(choices: Any) -> None:
    unknown = {20_000.0: Outline(figures={}, error="it depends on the data")}
    known = [trial(0, 50_000, 0.99), trial(1, 40_000, 0.985)]
    assert choices(FRONT, known, 20_000, wrong=unknown)[0][0] == {"size": 20_000}


def test_the_gain_per_second_decides_among_those_that_end_in_time(choices: Any) -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985)]
    first: list[Settings] = [{"size": 15_000, "seconds": 100}, {"size": 16_000, "seconds": 10}]
    assert choices(FRONT, known, first=first)[0][0] == first[1]
    late: list[Settings] = [{"size": 10_000, "seconds": 60}, {"size": 18_000, "seconds": 40}]
    assert choices(FRONT, known, first=late, left_s=100.0)[0][0] == late[0]
    assert choices(FRONT, known, first=late, left_s=50.0)[0][0] == late[1]
    assert choices(FRONT, known, first=late, left_s=10.0)[0][0] == late[0]


def test_no_size_is_computed_where_no_time_would_be_left_to_train(choices: Any) -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985)]
    first: list[Settings] = [{"size": 10_000, "seconds": 40}]
    choice, sizes = choices(FRONT, known, first=first, left_s=80.0, sizing_s=20.0)
    assert (choice[0], sizes.asked) == (first[0], [10_000])
    choice, sizes = choices(FRONT, known, first=first, left_s=60.0, sizing_s=20.0)
    assert (choice[0], sizes.asked) == (first[0], [])


def test_known_settings_are_not_chosen_again(choices: Any) -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985)]
    assert choices(FRONT, known, 20_000, 50_000)[0][0] is None
    assert choices(FRONT, known, 20_000, 10_000)[0][0] == {"size": 10_000}
