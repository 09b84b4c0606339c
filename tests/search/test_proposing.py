"""The point that is next: within the limits, new, and of most promise for its seconds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrink.base.foreign import Json
from shrink.contract.job import Outline
from shrink.contract.report import Figures
from shrink.contract.searched import Rung, Trial
from shrink.search.asking import Asking
from shrink.search.gains import gains_of
from shrink.search.goal import Goal
from shrink.search.keyed import Keyed
from shrink.search.proposing import Known, Looked, Looker, Proposer
from shrink.search.relearning import Relearning
from shrink.search.session import _why_not_predicted
from shrink.search.space import Settings
from shrink.search.surrogate import Described
from tests.search.fake import FakeAttempt, search

BASELINE = {"accuracy": 0.99, "tflite_bytes": 100_000.0}
FRONT = Goal("accuracy", objectives=("accuracy", "tflite_bytes"), traded=True)
SMALLEST = Goal("accuracy", max_drop=0.02)
BEST = Goal("accuracy", limits={"tflite_bytes": 60_000})


class Sizes(Looker):
    """Looks at points whose size is a setting, as are the seconds that they take."""

    def __init__(self, fails: tuple[float, ...] = ()) -> None:
        vars(self)["fails"] = fails

    def look(self, settings: Settings) -> Looked | None:
        share = float(str(settings["size"])) / BASELINE["tflite_bytes"]
        return Looked(settings, repr(sorted(settings.items())), share=share) if share else None

    def outlined(self, looked: Looked) -> Looked:
        size = float(str(looked.settings["size"]))
        failed = size in vars(self)["fails"]
        return replace(looked, outline=Outline(figures={"tflite_bytes": size}, stage_failed=failed))

    def seconds(self, looked: Sequence[Looked]) -> list[float]:
        return [float(str(one.settings.get("seconds", 1))) for one in looked]


class Larger(Sizes):
    """Finds files larger than their recipes say."""

    def look(self, settings: Settings) -> Looked | None:
        looked = super().look(settings)
        return looked and replace(looked, share=0.6 * looked.share)


def drawn(*sizes: float) -> Any:
    def draw(seed: int) -> Iterator[Settings]:
        return itertools.cycle({"size": size} for size in sizes)

    return draw


def nothing(seed: int) -> Iterator[Settings]:
    return iter(())


def trial(number: int, size: float, accuracy: float, **more: Any) -> Trial:
    settings: dict[str, Json] = {"size": size}
    figures: Figures = {"accuracy": accuracy, "tflite_bytes": size}
    given = {"number": number, "settings": settings, "figures": figures, "feasible": True}
    return Trial(**{**given, "status": "done", **more})


def _seen(trials: Sequence[Trial]) -> list[str]:
    return [repr([("size", one.settings["size"])]) for one in trials]


def known_of(trials: Sequence[Trial], *running: float) -> Known:
    points: list[Settings] = [{"size": size} for size in running]
    return Known(trials, frozenset(_seen(trials)), points, len(trials))


def proposed(goal: Goal, trials: Sequence[Trial], *sizes: float, looker: Any = None) -> Any:
    made = Proposer(goal, BASELINE, looker or Sizes(), [], drawn(*sizes), 0)
    found = made.propose(known_of(trials))
    return None if found is None else found["size"]


def timed(sizes: Sequence[float], seconds: Sequence[float]) -> list[Settings]:
    return [{"size": size, "seconds": s} for size, s in zip(sizes, seconds, strict=True)]


def test_the_first_point_is_the_one_that_takes_least_and_then_the_recipe() -> None:
    first = timed((9, 8, 7, 6, 0), (60, 30, 2, 3, 0))
    ours = Proposer(SMALLEST, BASELINE, Sizes(), first, drawn(1), 0).begin()
    assert [one["size"] for one in ours] == [7, 9]
    ours = Proposer(FRONT, BASELINE, Sizes(), first, drawn(1), 0).begin()
    assert [one["size"] for one in ours] == [7]


def test_points_that_train_nothing_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))
    made = search(tmp_path, Asking(trials=1), FakeAttempt())
    looker = Looker(made.candidates, None, Keyed(made.runs.store))
    epochs: list[Settings] = [{"prune.epochs": n, "prune.parameters": 0.5} for n in (3, 0, 2)]
    epochs.append({"prune.epochs": 0, "prune.parameters": 0.4})
    ours = Proposer(FRONT, {"accuracy": 0.9}, looker, epochs, drawn(1), 0).begin()
    assert ours == [epochs[1], epochs[3]]


def test_a_point_that_is_too_large_by_its_recipe_is_not_begun_with() -> None:
    first = timed((80_000, 70_000, 59_000, 50_000), (1, 1, 1, 1))
    goal = replace(FRONT, limits={"tflite_bytes": 60_000})
    ours = Proposer(goal, BASELINE, Sizes(), first, drawn(1), 0).begin()
    assert [one["size"] for one in ours] == [59_000]
    goal = replace(FRONT, limits={"tflite_bytes": 10_000})
    ours = Proposer(goal, BASELINE, Sizes(), first, drawn(1), 0).begin()
    assert [one["size"] for one in ours] == [80_000]  # the search tells what comes nearest


def test_points_that_are_likely_to_be_good_are_next_where_nothing_was_trained() -> None:
    first = timed((80_000, 30_000, 20_000), (1, 5, 9))
    made = Proposer(SMALLEST, BASELINE, Sizes(), first, nothing, 0)
    begun = made.begin()
    failed = trial(0, 80_000, 0, figures={}, status="failed", feasible=False)
    assert [one["size"] for one in begun] == [80_000]
    found = made.propose(known_of([failed]))
    assert found is not None
    assert found["size"] in (30_000, 20_000)


def test_of_a_front_the_size_with_most_room_below_it_is_next() -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 45_000, 0.99), trial(2, 40_000, 0.985)]
    assert proposed(FRONT, known, 80_000, 39_000, 20_000, 60_000) == 20_000


def test_the_smallest_within_the_drop_is_looked_for_where_it_is_likely() -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985), trial(2, 5_000, 0.80, feasible=False)]
    assert proposed(SMALLEST, known, 30_000, 17_000, 5_100, 19_900) == 17_000
    assert proposed(SMALLEST, known, 30_000, 50_100, 20_000) is None


def test_points_beyond_the_limits_and_those_that_would_fail_are_not_proposed() -> None:
    known = [trial(0, 20_000, 0.95), trial(1, 40_000, 0.97)]
    assert proposed(BEST, known, 90_000, 70_000, 59_000) == 59_000
    assert proposed(BEST, known, 90_000, 59_000, 58_000, looker=Sizes((59_000.0,))) == 58_000
    assert proposed(BEST, known, 90_000, 70_000) is None


def test_known_points_and_those_that_are_no_recipe_are_not_proposed() -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985)]
    assert proposed(FRONT, known, 20_000, 50_000, 0) is None
    assert proposed(FRONT, known, 20_000, 0, 10_000) == 10_000


def test_a_point_is_proposed_for_its_seconds() -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985)]
    first: list[Settings] = [{"size": 16_000, "seconds": 10}, {"size": 15_000, "seconds": 100}]
    looked = [Described({}, {"tflite_bytes": size}) for size in (16_000, 15_000)]
    smaller, larger = gains_of(FRONT, BASELINE, known, looked)
    assert larger > smaller > 0
    made = Proposer(FRONT, BASELINE, Sizes(), first, nothing, 0)
    assert made.propose(known_of(known)) == first[0]


def test_few_sizes_are_asked_for_and_others_predicted() -> None:
    asked = list[float]()

    class Counted(Sizes):
        def outlined(self, looked: Looked) -> Looked:
            asked.append(float(str(looked.settings["size"])))
            return super().outlined(looked)

    known = [trial(n, size, 0.99) for n, size in enumerate((80_000, 60_000, 40_000, 30_000))]
    sizes = [*range(2_000, 26_000, 1_000)]
    made = Proposer(SMALLEST, BASELINE, Counted(), [], drawn(*sizes), 0)
    found = made.propose(known_of(known))
    assert 1 <= len(asked) <= 3
    assert found is not None
    assert found["size"] in asked


def rung(accuracy: float) -> Rung:
    return Rung(share=1 / 3, figures={"accuracy": accuracy}, duration_s=1.0, run="r")


def halted(number: int, size: float, accuracy: float) -> Trial:
    bare = {"figures": {"tflite_bytes": size}, "status": "halted", "feasible": False}
    return trial(number, size, 0, **bare, rungs=(rung(accuracy),))


def test_a_halted_point_is_taken_to_gain_what_others_gained_from_its_rung() -> None:
    known = [
        trial(0, 50_000, 0.99, rungs=(rung(0.80),)),
        trial(1, 20_000, 0.985, rungs=(rung(0.79),)),
    ]
    looked = [Described({"size": 9_100.0}, {"tflite_bytes": 9_100.0})]
    (before,) = gains_of(SMALLEST, BASELINE, known, looked)
    (on_its_way,) = gains_of(SMALLEST, BASELINE, [*known, halted(2, 9_000, 0.785)], looked)
    (hopeless,) = gains_of(SMALLEST, BASELINE, [*known, halted(2, 9_000, 0.3)], looked)
    assert on_its_way > 0.9 * before
    assert hopeless < 0.1 * before
    unknown = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985)]
    (before,) = gains_of(SMALLEST, BASELINE, unknown, looked)
    assert gains_of(SMALLEST, BASELINE, [*unknown, halted(2, 9_000, 0.3)], looked) == [before]


def test_points_that_others_train_are_taken_to_become_what_is_expected() -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 40_000, 0.985)]
    sizes = (20_000.0, 19_000.0, 8_000.0)
    looked = [Described({"size": size}, {"tflite_bytes": size}) for size in sizes]
    alone = gains_of(FRONT, BASELINE, known, looked)
    beside = gains_of(FRONT, BASELINE, known, looked, looked[:1])
    assert beside[1] < 0.3 * alone[1]
    assert beside[2] / alone[2] > 2 * beside[1] / alone[1]
    assert beside[2] > 5 * beside[1]


def test_points_of_others_are_forgotten() -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 40_000, 0.985)]
    made = Proposer(FRONT, BASELINE, Sizes(), [], drawn(20_000, 10_000), 0)
    assert made.propose(known_of(known)) is not None
    trained = [*known, trial(2, 20_000, 0.98), trial(3, 10_000, 0.97)]
    assert made.propose(known_of(trained)) is None


@pytest.mark.parametrize("figures", [{}, {"tflite_bytes": None}])
def test_a_trained_point_without_a_figure_beats_nothing(figures: Figures) -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 40_000, 0.985)]
    bare = trial(2, 1, 0.985, figures={"accuracy": 0.985, **figures})
    looked = [Described({"size": s}, {"tflite_bytes": s}) for s in (30_000.0, 10_000.0)]
    (near, far) = gains_of(FRONT, BASELINE, [*known, bare], looked)
    assert far > near > 0.01


def test_a_front_counts_where_the_baseline_has_no_figure() -> None:
    known = [trial(0, 50_000, 0.99)]
    looked = [Described({"size": s}, {"tflite_bytes": s}) for s in (80_000.0, 30_000.0)]
    (larger, smaller) = gains_of(FRONT, {"accuracy": 0.99}, known, looked)
    assert smaller > larger >= 0
    (one, other) = gains_of(Goal("accuracy", max_drop=0.02), {"accuracy": 0.99}, [], looked)
    assert other > one > 0


def test_a_training_that_diverged_hides_no_other() -> None:
    goal = Goal("loss", objectives=("loss", "tflite_bytes"), traded=True)
    baseline = {"loss": 0.3, "tflite_bytes": 100_000.0}

    def point(number: int, size: float, loss: float) -> Trial:
        return trial(number, size, 0, figures={"loss": loss, "tflite_bytes": size})

    known = [point(0, 50_000, 0.31), point(1, 30_000, 0.33)]
    looked = [Described({"size": s}, {"tflite_bytes": s}) for s in (40_000.0, 15_000.0)]
    before = gains_of(goal, baseline, known, looked)
    after = gains_of(goal, baseline, [*known, point(2, 60_000, 1e6)], looked)
    assert before[1] > before[0]
    assert after[1] > after[0] >= 0
    assert after[1] < 1


def test_values_of_any_kind_are_settings() -> None:
    values: list[Json] = [None, True, "self", 0.5, ["a"], {"b": 1}]
    known = [trial(0, 50_000, 0.99)]
    for value in values:
        looked = [Described({"prune.teacher": value}, {"tflite_bytes": 20_000.0})]
        (gain,) = gains_of(SMALLEST, BASELINE, known, looked)
        assert gain > 0


def test_a_point_whose_size_nobody_can_say_is_proposed_by_what_is_expected() -> None:
    class Silent(Sizes):
        def outlined(self, looked: Looked) -> Looked:
            return replace(looked, outline=Outline(figures={}, error="it depends on the data"))

    known = [trial(0, 50_000, 0.99), trial(1, 40_000, 0.985)]
    assert proposed(FRONT, known, 20_000, looker=Silent()) == 20_000


def test_nothing_is_expected_where_the_baselines_metric_is_not_defined() -> None:
    looked = [Described({}, {"tflite_bytes": 9_000.0})]
    bare: Figures = {"accuracy": None, "tflite_bytes": 100_000.0}
    assert gains_of(FRONT, bare, [trial(0, 50_000, 0.9)], looked) == [0.0]


def test_limits_are_the_corner_that_a_front_is_measured_from() -> None:
    goal = replace(FRONT, limits={"tflite_bytes": 40_000}, max_drop=0.05)
    known = [trial(0, 30_000, 0.98)]
    looked = [Described({}, {"tflite_bytes": s}) for s in (10_000, 45_000)]
    inside, outside = gains_of(goal, BASELINE, known, looked)
    assert inside > 0
    assert outside == 0
    assert inside <= 0.05  # all of the box that a perfect file would have


@pytest.mark.parametrize(
    ("goal", "warm", "words"),
    [
        (FRONT, False, ""),
        (SMALLEST, False, ""),
        (BEST, False, ""),
        (FRONT, True, "warm starts"),
        (Goal("accuracy", limits={"p50_ms": 1.0}), False, "p50_ms is not known"),
        (Goal("accuracy", objectives=("accuracy", "loss"), traded=True), False, "loss is not"),
    ],
)
def test_what_is_not_known_untrained_is_named(goal: Goal, warm: bool, words: str) -> None:
    found = _why_not_predicted(goal, warm)
    assert found == words if not words else words in found


def test_a_search_finds_no_larger_file_than_chance_in_as_many_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = dict[str, float]()
    for sampler in ("gp", "random"):
        monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / sampler / "cache"))
        (tmp_path / sampler).mkdir()
        asking = Asking(max_drop=0.05, trials=5, sampler=sampler)
        best = search(tmp_path / sampler, asking, FakeAttempt()).find().best
        assert best is not None
        sizes[sampler] = float(best.figures["tflite_bytes"] or 0)
    assert sizes["gp"] <= sizes["random"]


def test_a_point_that_ends_within_the_time_goes_first() -> None:
    """The larger gain per second is that of a point which would be stopped."""
    known = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985)]
    first: list[Settings] = [{"size": 15_000, "seconds": 60}, {"size": 18_000, "seconds": 30}]
    made = [Proposer(FRONT, BASELINE, Sizes(), first, nothing, 0) for _ in range(3)]
    assert made[0].propose(replace(known_of(known), left_s=100.0)) == first[0]
    assert made[1].propose(replace(known_of(known), left_s=45.0)) == first[1]
    # Where none does, what is trained stays in the store, and the same command goes on from it.
    assert made[2].propose(replace(known_of(known), left_s=10.0)) == first[0]


def test_no_number_of_long_points_hides_one_that_ends_within_the_time() -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985)]
    first: list[Settings] = [{"size": 15_000 + n, "seconds": 100} for n in range(40)]
    first.append({"size": 18_000, "seconds": 5})
    made = Proposer(FRONT, BASELINE, Sizes(), first, nothing, 0)
    assert made.propose(replace(known_of(known), left_s=30.0)) == first[-1]
    # One that would end, and is too large once its size was asked for, leaves the others.
    goal = replace(FRONT, limits={"tflite_bytes": 16_500.0})
    made = Proposer(goal, BASELINE, Larger(), [first[0], first[-1]], nothing, 0)
    assert made.propose(replace(known_of(known), left_s=30.0)) == first[0]


def test_what_will_probably_be_asked_for_is_worked_out_meanwhile_but_for_what_is_known() -> None:
    known = [trial(0, 50_000, 0.99), trial(1, 20_000, 0.985)]
    first: list[Settings] = [{"size": 15_000 + 100 * n} for n in range(9)]
    looker, told = Sizes(), list[str]()
    vars(looker)["expect"] = lambda plan: None
    vars(looker)["work_ahead"] = lambda looked: told.append(looked.recipe)
    made = Proposer(FRONT, BASELINE, looker, first, nothing, 0)
    chosen = made.propose(known_of(known))
    assert 1 <= len(set(told)) == len(told) < len(first)
    assert repr(sorted((chosen or {}).items())) not in told


def test_a_guess_better_than_what_the_drop_allows_hides_nothing() -> None:
    """An AUC of 0.45 may fall to 0.43: 0.3, 0.2 and 0.1 are beyond, and a guess is above all."""
    goal, baseline = Goal("roc_auc", max_drop=0.02), {"roc_auc": 0.45, "tflite_bytes": 100_000.0}
    known = [
        replace(trial(n, size, 0, feasible=False), figures={"roc_auc": value, "tflite_bytes": size})
        for n, (size, value) in enumerate(((80_000, 0.3), (40_000, 0.2), (10_000, 0.1)))
    ]
    looked = [Described({"size": size}, {"tflite_bytes": size}) for size in (90_000.0, 5_000.0)]
    gains = gains_of(goal, baseline, known, looked, guess=0.5)
    assert gains == gains_of(goal, baseline, known, looked)
    assert all(gain < 0.1 * 95_000 for gain in gains)  # of what a file of 5 KB within it would gain


def test_what_a_model_has_to_learn_again_is_expected_to_cost() -> None:
    """By 0.95 of the way to guessing little is gained; by 0.1 of it nearly all."""

    class Forgetful(Sizes):
        relearning = Relearning(100, 0.1)

        def look(self, settings: Settings) -> Looked | None:
            looked = super().look(settings)
            return looked and replace(looked, behind=float(str(settings.get("behind", 0))))

    known = [replace(trial(0, 80_000, 0.99), settings={"size": 80_000, "behind": 0.0})]
    first: list[Settings] = [{"size": 15_000, "behind": 0.95}, {"size": 20_000, "behind": 0.1}]
    made = Proposer(FRONT, BASELINE, Forgetful(), first, nothing, 0)
    assert made.propose(known_of(known)) == first[1]
    made = Proposer(FRONT, BASELINE, Sizes(), first, nothing, 0)
    assert made.propose(known_of(known)) == first[0]
