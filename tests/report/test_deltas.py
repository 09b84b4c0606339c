"""What the difference of a metric proves, and how it is told."""

from __future__ import annotations

import pytest

from shrink.base.bootstrap import Resampled
from shrink.base.intervals import Interval
from shrink.report.deltas import control_sentence, own_limits, proven


def test_limits_stay_in_the_range_of_a_metric_that_has_one_end() -> None:
    sample = Resampled(0.4, (0.1, 0.4, 3.0) * 200, (-9.0, 0.1, 0.2, 0.5, 10.2), "a")
    found = own_limits(sample, "mape")
    assert found is not None
    assert found.low == 0
    assert found.high is not None
    assert found.high > 3


@pytest.mark.parametrize(
    ("name", "low", "high", "expected"),
    [
        ("accuracy", -0.01, 0.0554, "no proven difference"),
        ("accuracy", 0.0, 0.05, "no proven difference"),
        ("accuracy", -0.0411, -0.002, "worse"),
        ("accuracy", 0.002, 0.0411, "better"),
        ("loss", -0.3, -0.1, "better"),
        ("mean_absolute_error", 0.1, 0.3, "worse"),
        ("accuracy", None, None, None),
    ],
)
def test_proven_is_the_rule_of_the_report(
    name: str, low: float | None, high: float | None, expected: str | None
) -> None:
    value = 0.0187 if low is None or high is None else (low + high) / 2
    assert proven(name, Interval(value, low, high)) == expected


def test_control_sentence_speaks_in_points_and_proves_nothing_by_a_middle() -> None:
    gain = Interval(0.0187, -0.01, 0.0554)
    assert control_sentence("accuracy", 0.61, 0.6287, 0.8319, gain, 1200) == (
        "control: after 1,200 updates the student has accuracy 62.87 % with its teacher and "
        "61.00 % without (+1.87 points, 95 % interval -1.00 to +5.54: no proven difference); "
        "the teacher has 83.19 %"
    )
    text = control_sentence("loss", 1.0, 1.25, 0.5, Interval(0.25, None, None), 8)
    assert "(+0.25; there is no interval)" in text
