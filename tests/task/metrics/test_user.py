"""Metrics that are a user's functions: what they get, and their bootstrap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shrink.base.bootstrap import resampled_interval
from shrink.base.errors import StageError
from shrink.base.user_metric import UserMetric
from shrink.task.metrics.user import Collected, resampled

FUNCTIONS = """
import numpy as np

def mean_error(outputs, targets, groups):
    return np.nanmean(np.abs(outputs[:, 0] - targets))

def of_both(outputs, targets, groups):
    return float(outputs[0].sum() + outputs[1].sum() + len(targets))

def undefined(outputs, targets, groups):
    return float("nan")

def each(outputs, targets, groups):
    return outputs - targets

def broken(outputs, targets, groups):
    return outputs @ targets.nothing
"""
RANDOM = np.random.default_rng(2)
OUTPUTS, TARGETS = RANDOM.normal(size=(60, 1)), RANDOM.normal(size=60)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own_metrics.py"
    path.write_text(FUNCTIONS)
    return path


def collected(*outputs: np.ndarray, mask: np.ndarray | None = None) -> Collected:
    found = Collected()
    for part in (slice(0, 40), slice(40, 60)):
        masks = [None if mask is None else mask[part]] * len(outputs)
        found.add([one[part] for one in outputs], [TARGETS[part]] * len(outputs), masks)
    return found


def metric(file: Path, function: str) -> UserMetric:
    return UserMetric(str(file), function, "lower", "none")


def test_function_gets_all_examples_and_resamples_of_them(file: Path) -> None:
    errors = np.abs(OUTPUTS[:, 0] - TARGETS)
    found = resampled(collected(OUTPUTS).metric(metric(file, "mean_error")))
    assert found is not None
    assert found.value == pytest.approx(errors.mean(), rel=1e-12)
    assert len(found.replicates) == 400
    # The bootstrap of a mean has its standard error.
    spread = np.std(np.array(found.replicates, np.float64))
    assert spread == pytest.approx(errors.std() / np.sqrt(60), rel=0.15)
    interval = resampled_interval(found)
    assert interval.low is not None
    assert interval.low < found.value


def test_function_gets_a_tuple_of_several_outputs_and_nan_where_masked(file: Path) -> None:
    both = collected(OUTPUTS, 2 * OUTPUTS).metric(metric(file, "of_both"))
    assert both() == pytest.approx(3 * OUTPUTS.sum() + 2)
    mask = np.arange(60) % 2 == 0
    alone = collected(OUTPUTS, mask=mask).metric(metric(file, "mean_error"))
    assert alone() == pytest.approx(np.abs(OUTPUTS[:, 0] - TARGETS)[mask].mean(), rel=1e-12)


def test_nan_is_not_defined(file: Path) -> None:
    assert resampled(collected(OUTPUTS).metric(metric(file, "undefined"))) is None


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        ("each", r"returned float64 of shape \(60, 60\), no number"),
        ("broken", r"no attribute 'nothing' \(line 17\)"),
    ],
)
def test_what_returns_no_number_is_refused(file: Path, function: str, complaint: str) -> None:
    with pytest.raises(StageError, match=complaint):
        collected(OUTPUTS).metric(metric(file, function))()


def test_what_takes_too_long_has_a_value_and_no_interval(file: Path) -> None:
    error = collected(OUTPUTS).metric(metric(file, "mean_error"))
    found = resampled(error, most_seconds=0.0)
    assert found is not None
    assert found.value == error()
    interval = resampled_interval(found)
    assert (interval.low, interval.high) == (None, None)
    assert "600 calls" in (interval.note or "")
