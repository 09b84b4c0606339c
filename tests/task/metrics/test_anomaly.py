"""Areas under curves of reconstruction errors, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as sk

from shrink.base.bootstrap import resampled_interval
from shrink.base.errors import DataError
from shrink.base.metrics import check_metric, key_of_mapping
from shrink.task.config import TaskConfig
from shrink.task.metrics.whole import WholeSplit
from shrink.task.task import Task

RANDOM = np.random.default_rng(4)
GROUPS = RANDOM.choice(["normal", "scratch", "hole"], 120, p=[0.6, 0.3, 0.1])
TRUTH = GROUPS != "normal"
INPUTS = RANDOM.normal(size=(120, 5, 3))
MADE = INPUTS + RANDOM.normal(size=INPUTS.shape) * (1 + 0.4 * TRUTH[:, None, None])
ERRORS = ((MADE - INPUTS) ** 2).mean(axis=(1, 2))
EXPECTED = {
    "anomaly_roc_auc_normal": sk.roc_auc_score(TRUTH, ERRORS),
    "anomaly_average_precision_normal": sk.average_precision_score(TRUTH, ERRORS),
    "anomaly_partial_roc_auc_0.2_normal": sk.roc_auc_score(TRUTH, ERRORS, max_fpr=0.2),
}


def whole(
    groups: np.ndarray | None,
    mask: np.ndarray | None = None,
    *,
    loss: str = "mean_squared_error",
    logits: bool = False,
    made: np.ndarray = MADE,
    inputs: np.ndarray = INPUTS,
) -> WholeSplit:
    names = tuple(EXPECTED)
    found = WholeSplit(Task((loss,), names, "loss", (logits,), (), (1.0,)), names)
    found.groups = groups
    for part in (slice(0, 70), slice(70, 120)):
        found.add([made[part]], [inputs[part]], [None if mask is None else mask[part]])
    return found


@pytest.mark.parametrize("several", [False, True])
def test_areas_are_those_of_scikit_learn(several: bool) -> None:
    others = np.stack([RANDOM.choice(["a", "b"], 120), GROUPS], axis=1)
    found = whole(others if several else GROUPS).values()
    for key, expected in EXPECTED.items():
        assert found[key] == pytest.approx(expected, abs=1e-9)


def test_a_masked_step_counts_for_nothing() -> None:
    mask = np.arange(5) < RANDOM.integers(1, 6, (120, 1))
    errors = [((m - x)[own] ** 2).mean() for m, x, own in zip(MADE, INPUTS, mask, strict=True)]
    found = whole(GROUPS, mask).values()["anomaly_roc_auc_normal"]
    assert found == pytest.approx(sk.roc_auc_score(TRUTH, errors), abs=1e-9)


def test_there_is_an_interval_and_no_value_of_normal_examples_alone() -> None:
    sample = whole(GROUPS).resampled()["anomaly_roc_auc_normal"]
    assert sample is not None
    interval = resampled_interval(sample, bounds=(0.0, 1.0))
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low < sample.value < interval.high
    alone = whole(np.full(120, "normal"))
    assert alone.values()["anomaly_roc_auc_normal"] is None
    assert "outside" in alone.undefined("anomaly_roc_auc_normal")


@pytest.mark.parametrize("name", ["normal", "scratch", "norml"])
def test_areas_of_one_kind_of_examples_are_null(name: str) -> None:
    found = whole(np.full(120, name))
    assert set(found.values().values()) == {None}
    assert set(found.resampled().values()) == {None}
    assert "no test example is in the slice of the normal ones" in found.undefined(
        "anomaly_average_precision_normal"
    )


def test_areas_within_a_slice_without_normal_examples_are_null() -> None:
    part = whole(GROUPS).within(np.flatnonzero(GROUPS == "scratch"))
    assert set(part.values().values()) == {None}


def expected_of(errors: np.ndarray) -> list[float]:
    return [
        float(sk.roc_auc_score(TRUTH, errors)),
        float(sk.average_precision_score(TRUTH, errors)),
        float(sk.roc_auc_score(TRUTH, errors, max_fpr=0.2)),
    ]


@pytest.mark.parametrize(
    ("loss", "logits"),
    [
        ("binary_crossentropy", True),
        ("binary_focal_crossentropy", True),
        ("binary_crossentropy", False),
        ("categorical_crossentropy", True),
        ("mean_squared_error", True),
        ("hinge", True),
    ],
)
def test_logits_are_compared_with_pixels_as_their_loss_does(loss: str, logits: bool) -> None:
    pixels = RANDOM.uniform(size=(120, 5, 3))
    pixels /= pixels.sum(axis=-1, keepdims=True)
    outputs = np.log(pixels / (1 - pixels)) * 3 + RANDOM.normal(size=pixels.shape) * (
        0.2 + TRUTH[:, None, None]
    )
    made = outputs
    if logits and "crossentropy" in loss:
        made = 1 / (1 + np.exp(-outputs))
        if loss.startswith("categorical"):
            made = np.exp(outputs) / np.exp(outputs).sum(axis=-1, keepdims=True)
    found = whole(GROUPS, loss=loss, logits=logits, made=outputs, inputs=pixels).values()
    expected = expected_of(((made - pixels) ** 2).mean(axis=(1, 2)))
    assert list(found.values()) == pytest.approx(expected, abs=1e-9)


def test_without_slices_nobody_knows_what_is_normal() -> None:
    with pytest.raises(DataError, match=r"data\.slices says which"):
        whole(None)


def test_it_needs_the_slice_of_the_normal_ones_and_is_no_monitor() -> None:
    assert key_of_mapping({"name": "anomaly_roc_auc", "normal": "ok"}) == "anomaly_roc_auc_ok"
    with pytest.raises(ValueError, match="'normal' is missing"):
        key_of_mapping({"name": "anomaly_roc_auc"})
    with pytest.raises(ValueError, match="needs arguments"):
        check_metric("anomaly_roc_auc")
    with pytest.raises(ValueError, match="only test examples have"):
        TaskConfig(metrics=("anomaly_roc_auc_ok",), monitor="anomaly_roc_auc_ok")
