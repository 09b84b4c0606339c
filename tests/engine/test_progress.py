"""An end to training that no longer gets better."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shrink.engine.progress import EarlyStop, epochs_since_best, first_settled_epoch


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


@pytest.mark.parametrize(
    ("settles_after", "expected"), [((), 0), ((0,), 0), ((1, 10), 0), ((11,), 1), ((25, 3), 2)]
)
def test_first_settled_epoch_ends_at_or_after_the_last_change(
    settles_after: tuple[int, ...], expected: int
) -> None:
    hooks = [object(), *(SimpleNamespace(settles_after=update) for update in settles_after)]
    assert first_settled_epoch(hooks, steps=10, epochs=5) == expected


def test_first_settled_epoch_is_the_last_when_none_is_settled() -> None:
    hooks = [SimpleNamespace(settles_after=51)]
    assert first_settled_epoch(hooks, steps=10, epochs=5) == 4
    assert first_settled_epoch(hooks, steps=10, epochs=0) == 0


def test_is_over_counts_from_the_first_settled_epoch() -> None:
    history = {"val_loss": [0.1, 0.2, 0.3]}
    stop = EarlyStop("val_loss", 2, higher_is_better=False, history=history, first_epoch=2)
    assert not stop.is_over()
    assert not stop.is_over(0.4)
    assert stop.is_over(0.4, 0.5)
