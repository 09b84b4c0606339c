"""What is expected of a process, from numbers that are written down."""

from __future__ import annotations

import pytest

from shrink.contract.job import MicroBatchPlan, Planning
from shrink.contract.training import Training
from shrink.run.host_needs import HostNeeds
from shrink.run.host_peak import expected_peak
from shrink.run.host_plan import PROCESS_BYTES

MB = 1_000_000
PLANNED = Planning(MicroBatchPlan(8, 200 * MB, None))


def needs(kind: str = "quantize", **given: int | str) -> HostNeeds:
    return HostNeeds(name=kind, kind=kind, training=Training(), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "above"),
    [
        (needs(), 0),
        (needs(weights_bytes=10 * MB), 115 * MB),
        (needs(tflite_bytes=10 * MB), 85 * MB),
        # Training holds the device's 200 MB and copies; measuring that follows holds less.
        (needs("train", weights_bytes=10 * MB, epochs=1), 225 * MB),
        # Of large weights measuring holds more.
        (needs("train", weights_bytes=50 * MB, epochs=1), 575 * MB),
        (needs("distill", weights_bytes=4 * MB, teachers_bytes=10 * MB, epochs=1), 250 * MB),
    ],
)
def test_the_larger_of_training_and_measuring_is_expected(step: HostNeeds, above: int) -> None:
    assert expected_peak(step, PLANNED).predicted_bytes == PROCESS_BYTES + above


def test_what_is_not_known_is_null_with_the_reason() -> None:
    built = expected_peak(needs(unknown="a function builds the model"), PLANNED)
    assert built.predicted_bytes is None
    assert built.unknown == "not predicted: a function builds the model"
    free = expected_peak(needs("train", epochs=1), Planning(unplanned="there is no limit"))
    assert free.predicted_bytes is None
    assert free.unknown == "not planned: there is no limit"
