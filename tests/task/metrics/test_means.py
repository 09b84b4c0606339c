"""Means over elements, against scikit-learn and closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk

from shrink.base.scores.output import pool
from shrink.task.means import sums

RANDOM = np.random.default_rng(2)
LABELS = RANDOM.integers(0, 6, 200)
LOGITS = RANDOM.normal(size=(200, 6)) * 3
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
BITS = RANDOM.integers(0, 2, 200)
CHANCES = RANDOM.uniform(size=200)
REAL = RANDOM.normal(size=(200, 3)) * 5
FOUND = REAL + RANDOM.normal(size=(200, 3))


def mean(key: str, outputs: Any, targets: Any, **settings: Any) -> float:
    """Return a metric that is a mean."""
    settings.setdefault("from_logits", False)
    return pool([sums(np.asarray(outputs), np.asarray(targets), key, **settings)]).value


def test_log_loss_equals_scikit_learn() -> None:
    expected = sk.log_loss(LABELS, PROBABILITIES)
    assert mean("log_loss", PROBABILITIES, LABELS) == pytest.approx(expected, abs=1e-9)
    found = mean("log_loss", LOGITS, np.eye(6)[LABELS], from_logits=True)
    assert found == pytest.approx(expected, abs=1e-9)
    sure = np.where(RANDOM.uniform(size=200) < 0.1, BITS, CHANCES)
    expected = sk.log_loss(BITS, sure)
    assert mean("log_loss", sure[:, None], BITS) == pytest.approx(expected, abs=1e-9)


def test_brier_equals_scikit_learn() -> None:
    expected = sk.brier_score_loss(BITS, CHANCES)
    assert mean("brier", CHANCES[:, None], BITS) == pytest.approx(expected, abs=1e-9)
    expected = sk.brier_score_loss(LABELS, PROBABILITIES, scale_by_half=False)
    assert mean("brier", PROBABILITIES, LABELS) == pytest.approx(expected, abs=1e-9)
    assert mean("brier", LOGITS, LABELS, from_logits=True) == pytest.approx(expected, abs=1e-9)


def test_errors_of_real_targets_equal_scikit_learn() -> None:
    expected = sk.mean_absolute_error(REAL, FOUND)
    assert mean("mae", FOUND, REAL) == pytest.approx(expected, abs=1e-9)
    expected = sk.mean_absolute_percentage_error(REAL, FOUND)
    assert mean("mape", FOUND, REAL) == pytest.approx(expected, rel=1e-12)
    for share in (0.1, 0.5, 0.9):
        expected = sk.mean_pinball_loss(REAL, FOUND, alpha=share)
        assert mean(f"quantile_loss_{share}", FOUND, REAL) == pytest.approx(expected, abs=1e-9)


def test_pixel_accuracy_is_the_share_of_elements_that_are_right() -> None:
    truth = RANDOM.integers(0, 3, (5, 4, 4))
    scores = RANDOM.normal(size=(5, 4, 4, 3)) + np.eye(3)[truth]
    expected = sk.accuracy_score(truth.ravel(), scores.argmax(-1).ravel())
    assert mean("pixel_accuracy", scores, truth) == pytest.approx(expected, abs=1e-9)


def test_sequence_accuracy_is_the_share_of_examples_that_are_right_throughout() -> None:
    truth = RANDOM.integers(0, 3, (40, 6))
    scores = RANDOM.normal(size=(40, 6, 3)) + 4 * np.eye(3)[truth]
    lengths = RANDOM.integers(0, 7, 40)
    mask = np.arange(6) < lengths[:, None]
    right = [
        np.array_equal(scores[i, :length].argmax(-1), truth[i, :length])
        for i, length in enumerate(lengths)
        if length
    ]
    found = mean("sequence_accuracy", scores, truth, mask=mask)
    assert found == pytest.approx(np.mean(right), abs=1e-9)
