"""What a point is worth beside another: by figures written down by hand."""

from __future__ import annotations

import pytest

from shrink.contract.report import Figures
from shrink.search.goal import Goal

BEST: Figures = {"tflite_bytes": 1000, "arena_bytes": 400, "accuracy": 0.9}


@pytest.mark.parametrize(
    ("known", "slack", "expected"),
    [
        ({"tflite_bytes": 1001, "arena_bytes": 100}, 0.0, True),
        ({"tflite_bytes": 999, "arena_bytes": 900}, 0.0, False),
        ({"tflite_bytes": 1000, "arena_bytes": 399}, 0.0, False),
        ({"tflite_bytes": 1000, "arena_bytes": 400}, 0.0, True),
        ({"tflite_bytes": 1000, "arena_bytes": 401}, 0.0, True),
        ({"tflite_bytes": 1000}, 0.0, False),
        ({}, 0.0, False),
        # Training may still make it a tenth smaller, by compaction or pruned weights.
        ({"tflite_bytes": 1099, "arena_bytes": 400}, 0.1, False),
        ({"tflite_bytes": 1101, "arena_bytes": 400}, 0.1, True),
    ],
)
def test_a_point_that_is_no_smaller_than_the_best_is_known_before_it_is_trained(
    known: Figures, slack: float, expected: bool
) -> None:
    assert Goal("accuracy", max_drop=0.01).cannot_win(known, BEST, slack) == expected


def test_what_only_training_tells_rules_out_nothing() -> None:
    larger: Figures = {"tflite_bytes": 5000, "arena_bytes": 5000}
    assert not Goal("accuracy").cannot_win(larger, BEST)
    both = Goal("accuracy", objectives=("tflite_bytes", "accuracy"), traded=True)
    assert not both.cannot_win(larger, BEST)
    timed = {**BEST, "p50_ms": 2.0}
    same: Figures = {"tflite_bytes": 1000, "arena_bytes": 400}
    assert not Goal("accuracy", max_drop=0.01).cannot_win(same, timed)
