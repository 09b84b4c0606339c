"""An end to training that no longer gets better."""

from __future__ import annotations

import pytest

from shrink.engine.early_stop import EarlyStop, epochs_since_best


@pytest.mark.parametrize(
    ("values", "higher", "expected"),
    [
        ([], True, 0),
        ([0.5], True, 0),
        ([0.5, 0.7, 0.6, 0.7], True, 2),
        ([0.5, 0.7, 0.6, 0.4], False, 0),
        ([0.5, 0.7, 0.6], False, 2),
    ],
)
def test_epochs_since_best_counts_from_the_first_of_equals(
    values: list[float], higher: bool, expected: int
) -> None:
    assert epochs_since_best(values, higher_is_better=higher) == expected


def test_is_over_counts_epochs_of_earlier_processes() -> None:
    history = {"val_loss": [0.3, 0.4]}
    stop = EarlyStop("val_loss", 2, higher_is_better=False, history=history)
    assert not stop.is_over()
    assert stop.is_over(0.35)
    assert not stop.is_over(0.2)
