"""What plans take, beside what the store has of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrink.search.asking import Asking
from shrink.search.keyed import Keyed
from tests.search.fake import FakeAttempt, search


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHRINK_CACHE_DIR", str(tmp_path / "cache"))


def test_seconds_are_of_the_steps_that_the_store_does_not_have(tmp_path: Path) -> None:
    made = search(tmp_path, Asking(trials=1), FakeAttempt())
    other = {"prune.parameters": 0.5, "quantize.scheme": "float16"}
    plans = [made.candidates.plan(one) for one in ({}, other)]
    whole, _ = Keyed(made.runs.store).seconds(plans)
    # A start for each of three steps, two of one epoch, one of which measures curves of layers and
    # solves for channels.
    assert whole == (8 + 1) + (8 + 1 + 8 + 40) + 8
    made.runs.choose(plans[0], tmp_path / "out")
    assert Keyed(made.runs.store).seconds([plans[0]]) == [0]
    assert 0 < Keyed(made.runs.store).seconds(plans)[1] < whole / 2  # one scheme is new


def test_curves_of_layers_take_longest(tmp_path: Path) -> None:
    made = search(tmp_path, Asking(trials=1), FakeAttempt())
    settings = [{"prune.allocation": one} for one in ("uniform", "sensitivity")]
    plans = [made.candidates.plan(one) for one in settings]
    short, long = Keyed(made.runs.store).seconds(plans)
    assert long == short + 40
    # What cutting without curves takes says nothing of them.
    made.runs.choose(plans[0], tmp_path / "out")
    other = made.candidates.plan({"prune.allocation": "sensitivity", "prune.parameters": 0.3})
    assert 40 < Keyed(made.runs.store).seconds([other])[0] < 45


def test_no_plans_take_nothing(tmp_path: Path) -> None:
    made = search(tmp_path, Asking(trials=1), FakeAttempt())
    assert Keyed(made.runs.store).seconds([]) == []
