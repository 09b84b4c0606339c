"""Workers share the trials of a journal: none is lost or trained twice, whatever dies when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shrink.base.errors import RecipeError
from shrink.contract.search import Trial
from shrink.search import trials as module
from shrink.search.goal import Goal
from shrink.search.space import Chain, Choice, Interval, Settings, Space
from shrink.search.trials import Asked, Trials

SPACE = Space((Chain("", None, {"a": Choice((1, 2, 3)), "b": Interval(0, 3)}),))
GOAL = Goal("accuracy", {"tflite_bytes": 10})
FIRST: list[Settings] = [{"a": 1, "b": 0}, {"a": 2, "b": 1}]


def shared(root: Path, identity: str = "x", owner: str = "o") -> Trials:
    return Trials(root / "shared.journal", "r", GOAL, SPACE, identity, owner)


def ended(asked: Asked, accuracy: float = 0.5) -> Trial:
    return Trial(
        number=asked.number,
        settings=asked.settings,
        figures={"accuracy": accuracy, "tflite_bytes": 5},
        feasible=True,
        status="done",
    )


def test_workers_are_given_the_first_settings_once_and_see_each_others_trials(
    tmp_path: Path,
) -> None:
    one, other = shared(tmp_path), shared(tmp_path)
    one.begin(FIRST)
    other.begin(FIRST)
    asked = [one.ask(), other.ask()]
    assert [each.settings for each in asked] == FIRST
    assert not one.waits()
    assert one.register(asked[0], "r0")
    one.end(asked[0], ended(asked[0]), {})
    assert [each.settings for each in other.trials()] == FIRST[:1]
    later = [other.ask() for _ in range(3)]
    assert len({each.number for each in [*asked, *later]}) == 5


def test_settings_that_mean_the_recipe_of_another_trial_are_forgotten(tmp_path: Path) -> None:
    one, other = shared(tmp_path), shared(tmp_path)
    first, second = one.ask(FIRST[0]), other.ask(FIRST[1])
    assert one.register(first, "same")
    assert one.running() == [FIRST[0]]
    assert not other.register(second, "same")
    one.end(first, ended(first), {})
    assert not other.register(other.ask(FIRST[1]), "same")
    assert [each.number for each in one.trials()] == [first.number]
    assert one.running() == []


def test_trials_of_a_worker_that_died_wait_for_the_next_of_its_folder(tmp_path: Path) -> None:
    dead = shared(tmp_path)
    lost = dead.ask(FIRST[0])
    assert dead.register(lost, "r")
    elsewhere = shared(tmp_path, owner="another folder")
    elsewhere.stop_dead(mine=True)  # it is not theirs, and too young to be given up
    assert not elsewhere.waits()
    resumed = shared(tmp_path)
    resumed.stop_dead(mine=True)
    again = resumed.ask()
    assert again.settings == lost.settings
    assert resumed.register(again, "r")
    assert [(each.number, each.status) for each in resumed.trials()] == [(lost.number, "stopped")]


def test_old_trials_are_given_up_by_whoever_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = shared(tmp_path), shared(tmp_path, owner="another folder")
    lost = slow.ask(FIRST[0])
    assert slow.register(lost, "r")
    monkeypatch.setattr(module, "_DEAD_AFTER_S", -1.0)
    other.stop_dead()
    again = other.ask()
    assert again.settings == lost.settings
    # The first was only slow: what it says of its trial changes nothing any more.
    slow.end(lost, ended(lost), {})
    assert other.register(again, "other")
    other.end(again, ended(again, 0.7), {})
    assert {each.number: each.status for each in other.trials()}[again.number] == "done"


@pytest.mark.parametrize("when", ["before it is told", "before it is registered"])
def test_a_kill_at_any_moment_loses_no_trial_and_ends_none_twice(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = shared(tmp_path)
    dead.begin(FIRST[:1])
    asked = dead.ask()
    if when == "before it is told":
        assert dead.register(asked, "r")
        monkeypatch.setattr(dead._study, "tell", lambda *given, **more: None)
        dead.end(asked, ended(asked), {})
        monkeypatch.undo()
    resumed = shared(tmp_path)
    resumed.stop_dead(mine=True)
    if when == "before it is told":
        assert not resumed.waits()
        assert [each.status for each in resumed.trials()] == ["done"]
    else:
        assert resumed.trials() == []
        assert resumed.ask().settings == FIRST[0]


def test_a_trial_of_another_version_is_refused_with_a_way_out(tmp_path: Path) -> None:
    trials = shared(tmp_path)
    asked = trials.ask(FIRST[0])
    trials.register(asked, "a")
    asked.trial.set_user_attr("trial", json.dumps({"number": 0, "status": "pruned"}))
    with pytest.raises(RecipeError, match="another version of shrink wrote trial 0") as caught:
        trials.trials()
    assert "--force" in str(caught.value.hint)


def test_the_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    shared(tmp_path)
    with pytest.raises(RecipeError, match="another recipe, space, or limits"):
        shared(tmp_path, "y")
