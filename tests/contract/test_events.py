"""Events cross a process as JSON, whatever their numbers are."""

from __future__ import annotations

import json
import math

import pytest

from shrink.base.progress import Phase, Progress
from shrink.contract.events import message_to_plain, read_message


@pytest.mark.parametrize("number", [math.inf, -math.inf])
def test_numbers_that_json_does_not_know_are_null_and_come_back(number: float) -> None:
    told = Progress(1, 2, 3, 4, number, {"loss": 0.5, "val_loss": number, "a.b": number}, True)
    plain = message_to_plain(told)
    assert plain["metrics"] == {"loss": 0.5, "val_loss": None, "a.b": None}
    assert [["metrics", "val_loss"], str(number)] in plain["not_finite"]
    assert read_message(json.loads(json.dumps(plain, allow_nan=False))) == told


def test_nan_is_null_and_comes_back() -> None:
    plain = json.loads(json.dumps(message_to_plain(Progress(1, 1, 1, 1, None, {"x": math.nan}))))
    assert plain["metrics"] == {"x": None}
    back = read_message(plain)
    assert isinstance(back, Progress)
    assert math.isnan(back.metrics["x"])


def test_other_events_have_no_further_key() -> None:
    assert message_to_plain(Phase("measuring")) == {"event": "phase", "name": "measuring"}
