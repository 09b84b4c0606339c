"""The oracle's metrics by scikit-learn against shrink's, on outputs as coarse as int8's."""

from __future__ import annotations

import numpy as np
import pytest

from shrink.base.bootstrap import resampled_difference, resampled_interval
from tests.oracle import bootstrap
from tests.oracle.metrics import compute
from tests.oracle.truth import Output, Truth
from tests.oracle.whole import Whole
from tests.task.metrics.toys import sampled, value

RANDOM = np.random.default_rng(6)
LABELS = RANDOM.integers(0, 3, 240)
FINE = RANDOM.normal(size=(240, 3)) + 1.5 * np.eye(3)[LABELS]
COARSE = np.round(FINE * 2) / 2
REAL = RANDOM.normal(size=(240, 2)) * 3 + 1
FOUND = REAL + RANDOM.normal(size=(240, 2))
CASES = {
    "f1_macro": ("sparse_categorical_crossentropy", LABELS, FINE, COARSE),
    "roc_auc": ("sparse_categorical_crossentropy", LABELS, FINE, COARSE),
    "rmse": ("mean_squared_error", REAL, FOUND, np.round(FOUND * 2) / 2),
    "r2": ("mean_squared_error", REAL, FOUND, np.round(FOUND * 2) / 2),
}


@pytest.mark.parametrize("name", CASES)
def test_oracle_and_shrink_agree_on_values_intervals_and_differences(name: str) -> None:
    loss, targets, first, second = CASES[name]
    truth = Truth({"x": first}, [Output("y", loss, True)], {"y": targets}, metrics=[name])
    own = [compute([outputs], truth)[name] for outputs in (first, second)]
    samples = [sampled(name, outputs, targets, from_logits=True) for outputs in (first, second)]
    for metric, outputs in zip(own, (first, second), strict=True):
        assert isinstance(metric, Whole)
        found = value(name, outputs, targets, from_logits=True)
        assert found == pytest.approx(float(metric.value()[0]), abs=1e-9)
        assert metric.bounds[0] <= found <= metric.bounds[1]
    before, after = samples
    assert before is not None
    assert after is not None
    pairs = [
        (resampled_interval(before), bootstrap.interval(own[0])),
        (resampled_difference(before, after), bootstrap.interval(own[1], own[0])),
    ]
    for given, drawn in pairs:
        assert given is not None
        assert given.low is not None
        assert given.high is not None
        reach = 0.1 * (drawn.high - drawn.low)
        assert given.low == pytest.approx(drawn.low, abs=reach)
        assert given.high == pytest.approx(drawn.high, abs=reach)


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_many_weights_at_once_agree_with_scikit_learn(
    name: str, single: bool, coarse: bool
) -> None:
    loss, targets, *both = CASES[name]
    outputs = both[coarse]
    if single and name in ("f1_macro", "roc_auc"):
        loss, targets, outputs = "binary_crossentropy", (LABELS > 1) * 1, outputs[:, :1]
    elif single:
        targets, outputs = REAL[:, :1], outputs[:, :1]
    truth = Truth({"x": outputs}, [Output("y", loss, True)], {"y": targets}, metrics=[name])
    metric = compute([outputs], truth)[name]
    assert isinstance(metric, Whole)
    rows = np.random.default_rng(7).multinomial(240, np.full(240, 1 / 240), 20)
    rows[0] = LABELS != 2  # a class that is not there
    expected = [metric.by_scikit_learn(row) for row in rows]
    np.testing.assert_allclose(metric.value(rows), expected, rtol=1e-9, equal_nan=True)
