"""Expected calibration error against its definition, bin by bin."""

from __future__ import annotations

import numpy as np
import pytest

from shrink.base.bootstrap import resampled_difference, resampled_interval
from tests.task.metrics.toys import sampled, value

RANDOM = np.random.default_rng(4)


def _by_definition(confidence: np.ndarray, right: np.ndarray, bins: int) -> float:
    total = 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            total += inside.sum() * abs(right[inside].mean() - confidence[inside].mean())
    return total / len(confidence)


@pytest.mark.parametrize("bins", [5, 15])
def test_expected_calibration_error_follows_its_definition(bins: int) -> None:
    labels = RANDOM.integers(0, 4, 500)
    logits = RANDOM.normal(size=(500, 4)) * 2 + np.eye(4)[labels]
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = _by_definition(p.max(1), p.argmax(1) == labels, bins)
    key = f"expected_calibration_error_{bins}"
    assert value(key, p, labels) == pytest.approx(expected, abs=1e-9)
    assert value(key, logits, labels, from_logits=True) == pytest.approx(expected, abs=1e-9)
    bits, chance = RANDOM.integers(0, 2, 500), RANDOM.uniform(size=500)
    expected = _by_definition(np.maximum(chance, 1 - chance), (chance > 0.5) == bits, bins)
    assert value(key, chance[:, None], bits) == pytest.approx(expected, abs=1e-9)


def test_the_estimate_of_few_examples_is_too_high_for_an_interval() -> None:
    labels, p = RANDOM.integers(0, 2, 300), RANDOM.uniform(size=300)
    sample = sampled("expected_calibration_error_15", p[:, None], labels)
    assert sample is not None
    for found in (resampled_interval(sample), resampled_difference(sample, sample)):
        assert found is not None
        assert (found.low, found.high) == (None, None)
        assert "resamples bias it further" in str(found.note)
