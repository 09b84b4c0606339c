"""Events cross a process as JSON, whatever their numbers are."""

from __future__ import annotations

import json
import math

import pytest

from shrink.base.progress import Phase, Progress
from shrink.contract.events import message_to_plain, read_message


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_strict_json_does_not_know_come_back(number: float) -> None:
    told = Progress(1, 2, 3, 4, number, {"loss": 0.5, "val_loss": number}, True)
    back = read_message(json.loads(json.dumps(message_to_plain(told))))
    assert isinstance(back, Progress)
    assert repr(back) == repr(told)


def test_other_events_have_no_further_key() -> None:
    assert message_to_plain(Phase("measuring")) == {"event": "phase", "name": "measuring"}
