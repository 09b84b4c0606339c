"""Workers share a study: no point twice, and those of a dead worker come back."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from shrink.base.errors import RecipeError
from shrink.contract.searched import Rung, Trial
from shrink.search.goal import Goal
from shrink.search.rungs import Reached
from shrink.search.space import Chain, Choice, Interval, Space
from shrink.search.storage import open_storage
from shrink.search.study import _BEAT, _WORKER, Asked, Study

SPACE = Space((Chain("", None, {"a": Choice((1, 2, 3)), "b": Interval(0, 3)}),))
GOAL = Goal("accuracy", {"tflite_bytes": 10})


def study(root: Path, identity: str = "x") -> Study:
    place = str(root / "shared.journal")
    return Study(open_storage(place), "r", GOAL, SPACE, "tpe", 0, identity)


def trial_of(asked: Asked, accuracy: float) -> Trial:
    return Trial(
        number=asked.number,
        settings=asked.settings,
        figures={"accuracy": accuracy, "tflite_bytes": 5},
        feasible=True,
        status="done",
    )


def test_workers_are_given_the_first_points_once_and_see_what_others_found(tmp_path: Path) -> None:
    one, other = study(tmp_path), study(tmp_path)
    first = [{"a": 1, "b": 0}, {"a": 2, "b": 1}]
    one.begin(first)
    other.begin(first)
    asked = [one.ask(), other.ask()]
    assert [each.settings for each in asked] == first
    one.tell(asked[0], trial_of(asked[0], 0.5), {})
    assert [each.settings for each in other.trials()] == first[:1]
    later = [other.ask() for _ in range(3)]
    assert len({each.number for each in [*asked, *later]}) == 5


def test_a_point_that_another_worker_looks_at_is_known(tmp_path: Path) -> None:
    one, other = study(tmp_path), study(tmp_path)
    one.begin([{"a": 1, "b": 0}])
    first = one.ask()
    other._enqueue({"a": 1, "b": 0})
    second = other.ask()
    assert not one.is_known(first, "x")
    assert other.is_known(second, "x")
    assert not other.is_known(second, "y")


def test_of_two_workers_at_one_moment_the_later_waits_for_what_the_earlier_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shrink.search.study._UNDECIDED_S", 600.0)
    one, other = study(tmp_path), study(tmp_path)
    one.begin([{"a": 1, "b": 0}, {"a": 1, "b": 0}])
    first, second = one.ask(), other.ask()
    found: list[bool] = []
    later = threading.Thread(target=lambda: found.append(other.is_known(second, "x")))
    later.start()
    later.join(0.2)
    assert not found
    assert not one.is_known(first, "x")
    later.join()
    assert found == [True]


def test_rungs_of_all_workers_are_seen_but_of_a_point_that_was_given_back(tmp_path: Path) -> None:
    one, other = study(tmp_path), study(tmp_path)
    rung = Rung(share=1 / 9, figures={"accuracy": 0.4}, duration_s=1.0, run="r")
    mine, theirs = one.ask(), other.ask()
    one.reach(mine, [rung])
    other.reach(theirs, [rung, replace(rung, share=1 / 3)])
    assert {seen.number for seen in one.reached(1 / 9)} == {mine.number, theirs.number}
    assert one.reached(1 / 3) == [Reached(theirs.number, {"accuracy": 0.4})]
    one.give_back(mine)
    assert [seen.number for seen in other.reached(1 / 9)] == [theirs.number]


def test_points_of_a_dead_worker_come_back_once(tmp_path: Path) -> None:
    dead, one, other = study(tmp_path), study(tmp_path), study(tmp_path)
    dead.begin([{"a": 3, "b": 2}])
    lost = dead.ask()
    lost.trial.set_user_attr(_WORKER, "elsewhere:1:2:x")
    lost.trial.set_user_attr(_BEAT, 0.0)
    dead.is_known(lost, "x")
    taken = [one.take_over(), other.take_over()]
    assert taken == [1, 0]
    again = other.ask()
    assert again.settings == lost.settings
    assert not other.is_known(again, "x")


def test_points_of_a_silent_worker_elsewhere_come_back_and_of_a_living_one_do_not(
    tmp_path: Path,
) -> None:
    elsewhere, one = study(tmp_path), study(tmp_path)
    asked = elsewhere.ask()
    asked.trial.set_user_attr(_WORKER, "elsewhere:1:2:x")
    assert one.take_over() == 0
    asked.trial.set_user_attr(_BEAT, 0.0)
    assert one.take_over() == 1


def test_a_point_that_was_not_begun_is_asked_for_again_and_is_no_stopped_one(
    tmp_path: Path,
) -> None:
    one, other = study(tmp_path), study(tmp_path)
    one.begin([{"a": 1, "b": 0}])
    asked, later = one.ask(), other.ask()
    assert (one.running(before=asked), one.running(before=later), one.running()) == (0, 1, 2)
    one.decline(asked)
    assert one.left() == []
    assert one.ask().settings == asked.settings


def test_what_is_said_of_a_point_that_others_took_over_changes_nothing(tmp_path: Path) -> None:
    one, other = study(tmp_path), study(tmp_path)
    one.begin([{"a": 1, "b": 0}])
    asked = one.ask()
    asked.trial.set_user_attr(_WORKER, "elsewhere:1:2:x")
    asked.trial.set_user_attr(_BEAT, 0.0)
    assert other.take_over() == 1
    one.tell(asked, trial_of(asked, 0.5), {})
    one.leave(asked, trial_of(asked, 0.5))
    one.give_back(asked)
    again = other.ask()
    assert again.settings == asked.settings
    other.tell(again, trial_of(again, 0.5), {})
    assert [each.number for each in one.trials()] == [again.number]
    assert [(each.number, each.status) for each in one.left()] == [(asked.number, "stopped")]
    assert other.ask().settings != asked.settings


def test_the_storage_of_another_search_is_refused(tmp_path: Path) -> None:
    study(tmp_path)
    with pytest.raises(RecipeError, match="another recipe, space, or limits"):
        study(tmp_path, "y")
