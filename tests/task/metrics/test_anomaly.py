"""Areas under curves of reconstruction errors, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as sk

from shrink.base.errors import DataError
from shrink.base.metrics import check_metric, key_of_mapping
from shrink.base.resampled import resampled_interval
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


def whole(groups: np.ndarray | None, mask: np.ndarray | None = None) -> WholeSplit:
    names = tuple(EXPECTED)
    found = WholeSplit(Task(("mean_squared_error",), names, "loss", (False,), (), (1.0,)), names)
    found.groups = groups
    for part in (slice(0, 70), slice(70, 120)):
        found.add([MADE[part]], [INPUTS[part]], [None if mask is None else mask[part]])
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


def test_without_slices_nobody_knows_what_is_normal() -> None:
    with pytest.raises(DataError, match=r"said by data\.slices"):
        whole(None)


def test_it_needs_the_slice_of_the_normal_ones_and_is_no_monitor() -> None:
    assert key_of_mapping({"name": "anomaly_roc_auc", "normal": "ok"}) == "anomaly_roc_auc_ok"
    with pytest.raises(ValueError, match="'normal' is missing"):
        key_of_mapping({"name": "anomaly_roc_auc"})
    with pytest.raises(ValueError, match="needs arguments"):
        check_metric("anomaly_roc_auc")
    with pytest.raises(ValueError, match="only test examples have"):
        TaskConfig(metrics=("anomaly_roc_auc_ok",), monitor="anomaly_roc_auc_ok")
