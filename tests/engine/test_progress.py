"""The speed of an epoch, and an end to training that no longer gets better."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tf_keras as keras

from shrink.base.progress import Progress
from shrink.engine.progress import BestEpoch, ProgressCallback, first_settled_epoch


def test_each_epoch_has_its_own_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first step builds the graph: 10 examples in a second, then 20 examples in one.
    clock = iter([1.0, 2.0, 10.0, 10.5, 11.0])
    monkeypatch.setattr("shrink.engine.progress.time.perf_counter", lambda: next(clock))
    reports: list[Progress] = []
    callback = ProgressCallback(
        reports.append, stage="", epochs=2, examples=20, batch_size=10, steps=2, every_step=True
    )
    callback.set_model(SimpleNamespace(trainable_variables=[]))
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        for step in range(2):
            callback.on_train_batch_end(step, {"loss": 1.0})
        callback.on_epoch_end(epoch, {"loss": 1.0})
    assert [one.examples_per_s for one in reports if one.epoch_end] == [10.0, 20.0]
    assert callback.throughput.examples_per_s == 15.0


def best_epoch(history: dict[str, list[float]], **settings: Any) -> BestEpoch:
    return BestEpoch(keras.Sequential(), "val_loss", history=history, **settings)


@pytest.mark.parametrize(
    ("values", "higher", "since_best"),
    [
        ([], True, 0),
        ([0.5], True, 0),
        ([0.5, 0.7, 0.6, 0.7], True, 2),
        ([0.5, 0.7, 0.6, 0.4], False, 0),
        ([0.5, 0.7, 0.6], False, 2),
        ([float("nan"), 0.7, 0.6], True, 1),
        ([0.5, float("nan")], False, 1),
    ],
)
def test_patience_counts_from_the_first_of_equal_epochs(
    values: list[float], higher: bool, since_best: int
) -> None:
    for patience in range(1, 4):
        stop = best_epoch({"val_loss": values}, higher_is_better=higher, patience=patience)
        assert stop.is_over() == (since_best >= patience)
    assert not best_epoch({"val_loss": values}, higher_is_better=higher).is_over()


def test_patience_counts_epochs_of_earlier_processes() -> None:
    stop = best_epoch({"val_loss": [0.3, 0.4]}, higher_is_better=False, patience=2)
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


def test_patience_counts_from_the_first_settled_epoch() -> None:
    history = {"val_loss": [0.1, 0.2, 0.3]}
    stop = best_epoch(history, higher_is_better=False, patience=2, first_epoch=2)
    assert not stop.is_over()
    assert not stop.is_over(0.4)
    assert stop.is_over(0.4, 0.5)
