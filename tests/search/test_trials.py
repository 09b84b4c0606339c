"""Workers share the trials of a journal: none is lost or trained twice, whatever dies when."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shrink.base.errors import RecipeError
from shrink.base.files import TEMPORARY_PREFIX, staging
from shrink.contract.search import Trial
from shrink.search import trials as module
from shrink.search.space import Settings
from shrink.search.trials import Trials

FIRST: list[Settings] = [{"a": 1, "b": [0, {"c": None}]}, {}]


def shared(root: Path, identity: str = "x", owner: str = "o") -> Trials:
    return Trials(root / "shared.journal", identity, owner)


def started(trials: Trials, settings: Settings, recipe: str) -> int:
    number = trials.start(settings, recipe)
    assert number is not None
    return number


def ended(number: int, settings: Settings) -> Trial:
    figures = {"accuracy": 0.5, "tflite_bytes": 5.0}
    return Trial(number=number, settings=settings, figures=figures, feasible=True, status="done")


def test_the_first_settings_wait_once_and_workers_see_each_others_trials(tmp_path: Path) -> None:
    one, other = shared(tmp_path), shared(tmp_path)
    one.begin(FIRST)
    other.begin(FIRST)
    assert other.read().waiting == FIRST
    number = started(one, FIRST[0], "r0")
    assert other.read().waiting == FIRST[1:]
    assert other.read().running == FIRST[:1]
    one.end(ended(number, FIRST[0]))
    assert other.read().trials == [ended(number, FIRST[0])]
    other.begin(FIRST)
    assert other.read().waiting == FIRST[1:]
    assert [started(other, {"a": n}, f"r{n}") for n in (1, 2)] == [1, 2]


def test_settings_that_mean_the_recipe_of_another_trial_are_forgotten(tmp_path: Path) -> None:
    one, other = shared(tmp_path), shared(tmp_path)
    one.begin(FIRST)
    number = started(one, FIRST[0], "same")
    assert other.start(FIRST[1], "same") is None
    one.end(ended(number, FIRST[0]))
    assert other.start(FIRST[1], "same") is None
    assert (len(one.read().entries), one.read().waiting) == (1, [])


def test_trials_of_a_worker_that_died_wait_for_the_next_of_its_folder(tmp_path: Path) -> None:
    lost = started(shared(tmp_path), FIRST[0], "r")
    elsewhere = shared(tmp_path, owner="another folder")
    elsewhere.stop_dead(mine=True)  # it is not theirs, and too young to be given up
    assert not elsewhere.read().waiting
    resumed = shared(tmp_path)
    resumed.stop_dead(mine=True)
    assert resumed.read().waiting == FIRST[:1]
    assert started(resumed, FIRST[0], "r") != lost
    assert [(one.number, one.status) for one in resumed.read().trials] == [(lost, "stopped")]


@pytest.mark.parametrize("is_begun_again", [False, True])
def test_an_old_trial_is_given_up_by_whoever_asks_until_its_worker_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_begun_again: bool
) -> None:
    slow, other = shared(tmp_path), shared(tmp_path, owner="another folder")
    number = started(slow, FIRST[0], "r")
    with monkeypatch.context() as patched:
        patched.setattr(module, "_DEAD_AFTER_S", -1.0)
        other.stop_dead()
    assert [one.status for one in other.read().trials] == ["stopped"]
    assert other.read().waiting == FIRST[:1]
    again = started(other, FIRST[0], "r") if is_begun_again else None
    slow.end(ended(number, FIRST[0]))
    assert other.read().trials == [ended(number, FIRST[0])]
    assert other.read().waiting == []
    if again is None:
        assert other.start(FIRST[0], "r") is None
    else:
        other.end(ended(again, FIRST[0]))
        assert other.read().trials == [ended(n, FIRST[0]) for n in (number, again)]


def test_what_a_killed_worker_left_beside_the_journal_is_removed(tmp_path: Path) -> None:
    dead = tmp_path / f"{TEMPORARY_PREFIX}dead"
    dead.mkdir()
    (dead / "shared.journal").write_text("half", encoding="utf-8")
    with staging(tmp_path) as alive:
        shared(tmp_path)
        assert alive.is_dir()
    assert not dead.exists()


def test_a_kill_while_the_journal_is_written_leaves_it_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = shared(tmp_path)
    trials.begin(FIRST)
    number = started(trials, FIRST[0], "r")
    before = trials.read()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    changes: list[Callable[[], object]] = [
        lambda: trials.start(FIRST[1], "s"),
        lambda: trials.end(ended(number, FIRST[0])),
        lambda: trials.stop_dead(mine=True),
    ]
    for change in changes:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                change()
        assert shared(tmp_path).read() == before


def test_a_trial_ends_while_another_worker_chooses(tmp_path: Path) -> None:
    one, other = shared(tmp_path), shared(tmp_path)
    number = started(one, FIRST[0], "r")
    with other.choosing():
        one.end(ended(number, FIRST[0]))
        assert len(other.read().trials) == 1


@pytest.mark.parametrize("content", ["", "[]", '{"identity": "x"', '{"identity": 1}'])
def test_another_file_is_refused_with_a_way_out(content: str, tmp_path: Path) -> None:
    (tmp_path / "shared.journal").write_text(content, encoding="utf-8")
    with pytest.raises(RecipeError, match="not a journal of this version") as caught:
        shared(tmp_path)
    assert "--storage file: name another one, or delete it" in str(caught.value.hint)


def test_a_trial_of_another_version_is_refused(tmp_path: Path) -> None:
    trials = shared(tmp_path)
    trials.end(ended(started(trials, FIRST[0], "r"), FIRST[0]))
    path = tmp_path / "shared.journal"
    plain = json.loads(path.read_text(encoding="utf-8"))
    plain["entries"][0]["ended"]["status"] = "pruned"
    path.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(RecipeError, match="status"):
        trials.read()


def test_the_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    shared(tmp_path)
    with pytest.raises(RecipeError, match="another recipe, space, or limits") as caught:
        shared(tmp_path, "y")
    assert "--storage file: name another one, or delete it" in str(caught.value.hint)
