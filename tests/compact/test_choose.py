"""The choice of bands: whichever process searches, the same bands come out."""

from __future__ import annotations

import json

import pytest

from shrink.compact import choose, moves
from shrink.compact.bands import Banding
from shrink.compact.choose_child import plain_choice, read_choice
from shrink.compact.graph import read_graph
from shrink.compact.moves import Choice
from shrink.compact.search import Candidate
from shrink.compact.stretch import Survey
from tests.compact.toys import chain


@pytest.fixture(autouse=True)
def always_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "_WORTH_A_PROCESS", 0)


def test_a_part_finds_the_same_in_a_process_of_its_own() -> None:
    survey = Survey(read_graph(chain(16)))
    found = choose._in_child(survey, survey.macs // 10, 1)
    assert found is not None
    assert any(choice.candidate.bandings for choice in found)
    assert found == moves.moved_choices(survey, survey.macs // 10, 1)


def test_a_process_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, few in (("_TRIES", 600), ("_STARTS", 2), ("_CANDIDATES", 8), ("_WORK", 10_000)):
        monkeypatch.setattr(moves, name, few)
    survey = Survey(read_graph(chain(16)))
    with monkeypatch.context() as patch:
        patch.setattr(choose, "_in_child", moves.moved_choices)
        wanted = choose.choose(survey, survey.macs // 10)
    monkeypatch.setattr(choose, "MODULE", "shrink.compact.no_such_module")
    assert choose._in_child(survey, 0, 1) is None
    found = choose.choose(survey, survey.macs // 10)
    assert wanted is not None
    assert found is not None
    assert (found.bandings, found.plan) == (wanted.bandings, wanted.plan)


def test_choices_are_read_with_tensors_numbered_as_in_the_graph() -> None:
    bandings = (Banding(0, 2, (4, 8), frozenset({1, 2}), 1), Banding(2, 4, (5,), upward=True))
    choice = Choice(Candidate(bandings, 3000, 2000, 10), 3100, 12)
    stored = json.loads(json.dumps(plain_choice(choice)))
    renumbered = (bandings[0]._replace(kept=frozenset({7, 9})), bandings[1])
    candidate = choice.candidate._replace(bandings=renumbered)
    assert read_choice(stored, (5, 7, 9)) == choice._replace(candidate=candidate)
