"""Events cross a process as JSON, whatever their numbers are."""

from __future__ import annotations

import json
import math
import os

import pytest

from shrink.base.progress import Progress
from shrink.contract.events import Beat, Heartbeat, message_to_plain, read_message


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_strict_json_does_not_know_come_back(number: float) -> None:
    told = Progress(1, 2, 3, 4, number, {"loss": 0.5, "val_loss": number}, True)
    back = read_message(json.loads(json.dumps(message_to_plain(told))))
    assert isinstance(back, Progress)
    assert repr(back) == repr(told)


def test_heartbeat_is_seen_through_its_descriptor() -> None:
    heartbeat = Heartbeat.create()
    assert heartbeat.read() is None
    other = Heartbeat(heartbeat.descriptor)
    other.beat(5, 16)
    assert heartbeat.read() == Beat(5, 16)
    other.rest()
    assert heartbeat.read() is None
    heartbeat.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(heartbeat.descriptor)
