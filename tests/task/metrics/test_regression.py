"""RMSE and R² against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as sk

from tests.task.metrics.toys import value, weighted

RANDOM = np.random.default_rng(3)
REAL = RANDOM.normal(size=(150, 3)) * [1, 5, 0.1] + [0, 100, 1e4]
FOUND = REAL + RANDOM.normal(size=(150, 3)) * [0.5, 1, 0.05]


def test_rmse_equals_scikit_learn_of_one_number_and_pools_several() -> None:
    expected = sk.root_mean_squared_error(REAL[:, 0], FOUND[:, 0])
    assert value("rmse", FOUND[:, 0], REAL[:, 0]) == pytest.approx(expected, abs=1e-9)
    expected = np.sqrt(sk.mean_squared_error(REAL, FOUND))
    assert value("rmse", FOUND, REAL) == pytest.approx(expected, abs=1e-9)


def test_r2_equals_scikit_learn() -> None:
    expected = sk.r2_score(REAL, FOUND)
    assert value("r2", FOUND, REAL) == pytest.approx(expected, abs=1e-9)
    weights = RANDOM.integers(0, 3, (2, 150)).astype(float)
    found = weighted("r2", FOUND, REAL).of(weights)
    expected = [sk.r2_score(REAL, FOUND, sample_weight=row) for row in weights]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
