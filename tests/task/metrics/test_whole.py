"""Metrics of all examples, batch by batch and over several outputs."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as sk

from shrink.base.bootstrap import resampled_difference, resampled_interval
from shrink.base.metrics import METRICS
from shrink.task.metrics.whole import WholeSplit
from shrink.task.task import Task

RANDOM = np.random.default_rng(5)
LABELS = RANDOM.integers(0, 3, 90)
LOGITS = RANDOM.normal(size=(90, 3)) + 2 * np.eye(3)[LABELS]
ANGLES = RANDOM.normal(size=(90, 1))
FOUND = ANGLES + 0.3 * RANDOM.normal(size=(90, 1))


def task(*metrics: str, losses: tuple[str, ...] = ("sparse_categorical_crossentropy",)) -> Task:
    """Return a task of logits."""
    return Task(losses, metrics, metrics[0], (True,) * len(losses), (), (1.0,) * len(losses))


def whole(own: Task, outputs: list[np.ndarray], targets: list[np.ndarray]) -> WholeSplit:
    """Return what three batches of 40, 40 and 10 examples tell."""
    found = WholeSplit(own, own.metrics)
    for start in (0, 40, 80):
        part = slice(start, min(start + 40, len(outputs[0])))
        none = [None] * len(outputs)
        found.add([o[part] for o in outputs], [t[part] for t in targets], none)
    return found


def test_values_are_those_of_all_batches_together() -> None:
    values = whole(task("f1_macro", "recall_1"), [LOGITS], [LABELS]).values()
    decided = LOGITS.argmax(1)
    expected = sk.f1_score(LABELS, decided, average="macro")
    assert values["f1_macro"] == pytest.approx(expected, abs=1e-9)
    expected = sk.recall_score(LABELS, decided, labels=[1], average="macro")
    assert values["recall_1"] == pytest.approx(expected, abs=1e-9)


def test_each_metric_is_the_mean_over_the_outputs_that_it_goes_with() -> None:
    losses = ("sparse_categorical_crossentropy", "mean_squared_error", "mean_squared_error")
    other = FOUND + 1
    own = task("f1_macro", "rmse", losses=losses)
    found = whole(own, [LOGITS, FOUND, other], [LABELS, ANGLES, ANGLES]).values()
    expected = [sk.root_mean_squared_error(ANGLES, one) for one in (FOUND, other)]
    assert found["rmse"] == pytest.approx(np.mean(expected), abs=1e-9)
    expected = sk.f1_score(LABELS, LOGITS.argmax(1), average="macro")
    assert found["f1_macro"] == pytest.approx(expected, abs=1e-9)


def test_what_is_not_defined_has_a_reason_and_leaves_the_others() -> None:
    one_class = np.zeros(90, int)
    found = whole(task("roc_auc", "f1_macro"), [LOGITS], [one_class])
    resampled = found.resampled()
    assert resampled["roc_auc"] is None
    assert resampled["f1_macro"] is not None
    assert "no example" in found.undefined("roc_auc")


def test_examples_that_the_metric_needs_all_of_have_finite_influences_and_no_interval() -> None:
    found = WholeSplit(task("roc_auc", losses=("binary_crossentropy",)), ("roc_auc",))
    found.add([np.array([[1.0], [-1.0]])], [np.array([1, 0])], [None])
    sample = found.resampled()["roc_auc"]
    assert sample is not None
    assert sample.influences == (1.0, 1.0)
    assert resampled_interval(sample).low is None


def test_resamples_of_two_artifacts_on_the_same_examples_are_paired() -> None:
    close = LOGITS + 0.05 * RANDOM.normal(size=LOGITS.shape)
    own = task("roc_auc")
    first, second = (whole(own, [one], [LABELS]).resampled()["roc_auc"] for one in (LOGITS, close))
    assert first is not None
    assert second is not None
    alone = resampled_interval(first, bounds=(0.0, 1.0))
    change = resampled_difference(first, second, bounds=(0.0, 1.0))
    assert change is not None
    assert None not in (alone.low, alone.high, change.low, change.high)
    assert change.high - change.low < 0.3 * (alone.high - alone.low)  # type: ignore[operator]


def test_every_metric_that_is_no_mean_has_a_value_and_an_interval() -> None:
    others = [n for n, i in METRICS.items() if i.kinds in ({"values"}, {"boxes"})]
    keys = [n for n, i in METRICS.items() if not i.is_mean and n not in others]
    keys = [k if k != "false_accepts_per_hour" else f"{k}_0.1_1_2" for k in keys]
    for key, sample in whole(task(*keys), [LOGITS], [LABELS]).resampled().items():
        assert sample is not None, key
        found = resampled_interval(sample)
        if key.startswith("expected_calibration_error"):
            assert (found.low, found.high, found.note) == (None, None, sample.why)
            assert found.note
            continue
        assert found.low is not None, key
        assert found.high is not None, key
        assert found.low <= sample.value <= found.high, key


@pytest.mark.parametrize("loss", ["mean_squared_error", "sparse_categorical_crossentropy"])
def test_nan_among_the_outputs_is_the_reason_where_it_leaves_no_value(loss: str) -> None:
    real = loss == "mean_squared_error"
    outputs, targets = (FOUND, ANGLES) if real else (LOGITS, LABELS)
    outputs = outputs.copy()
    outputs[[3, 50]] = np.nan
    names = ("rmse", "r2") if real else ("expected_calibration_error_15",)
    own = task(*names, losses=(loss,))
    found = whole(own, [outputs], [targets])
    assert found.values() == dict.fromkeys(names)
    assert found.resampled() == dict.fromkeys(names)
    for name in names:
        assert found.undefined(name) == "the outputs of 2 of 90 examples have NaN"
        assert found.within(np.arange(4, 50)).values()[name] is not None
        assert "1 of 10 " in found.within(np.arange(45, 55)).undefined(name)
    constant = whole(task("r2", losses=(loss,)), [FOUND], [np.ones_like(ANGLES)])
    assert constant.undefined("r2") == "a target is the same for all examples"
