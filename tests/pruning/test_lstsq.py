"""Greedy elimination against solving every case anew with numpy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from shrink.pruning.lstsq import Fit, Moments, eliminate, fit

BLOCKS = [np.array([0, 1]), np.array([2, 3]), np.array([4, 5]), np.array([6, 7])]


def data(seed: int = 0, rows: int = 200, outputs: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 8)) @ random.normal(size=(8, 8)) + random.normal(size=8)
    y = x @ random.normal(size=(8, outputs)) + 0.1 * random.normal(size=(rows, outputs)) + 2.0
    return x, y


def fitted(x: np.ndarray, y: np.ndarray, intercept: bool, ridge: float = 1e-12) -> Fit:
    moments = Moments(x.shape[1], y.shape[1])
    for start in range(0, len(x), 64):
        moments.add(x[start : start + 64], y[start : start + 64])
    start_solution = np.zeros((x.shape[1], y.shape[1]))
    return fit(moments, start_solution, BLOCKS, intercept=intercept, ridge=ridge)


def solved_anew(
    x: np.ndarray, y: np.ndarray, channels: tuple[int, ...], intercept: bool
) -> tuple[float, np.ndarray]:
    """Return the squared error, and the prediction, of these channels alone."""
    columns = x[:, np.concatenate([BLOCKS[c] for c in channels])]
    if intercept:
        columns = np.column_stack([columns, np.ones(len(x))])
    prediction = columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
    return float(np.sum((y - prediction) ** 2)), prediction


@pytest.mark.parametrize("intercept", [False, True])
def test_fit_equals_least_squares(intercept: bool) -> None:
    x, y = data()
    found = fitted(x, y, intercept)
    _, expected = solved_anew(x, y, (0, 1, 2, 3), intercept)
    np.testing.assert_allclose(x @ found.problem.solution + found.intercept(), expected, atol=1e-6)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_eliminate_one_is_the_best_of_all(seed: int, intercept: bool) -> None:
    x, y = data(seed)
    found = fitted(x, y, intercept)
    removed = eliminate([found.problem], 1)
    errors = {kept: solved_anew(x, y, kept, intercept)[0] for kept in combinations(range(4), 3)}
    kept = tuple(c for c in range(4) if c not in removed)
    assert kept == min(errors, key=lambda key: errors[key])


@pytest.mark.parametrize("intercept", [False, True])
def test_eliminate_leaves_the_least_squares_solution_of_the_rest(intercept: bool) -> None:
    x, y = data(3)
    found = fitted(x, y, intercept)
    removed = eliminate([found.problem], 2)
    kept = tuple(c for c in range(4) if c not in removed)
    _, expected = solved_anew(x, y, kept, intercept)
    np.testing.assert_allclose(x @ found.problem.solution + found.intercept(), expected, atol=1e-6)
    gone = np.concatenate([BLOCKS[c] for c in removed])
    assert np.all(found.problem.solution[gone] == 0)


def test_cost_is_the_rise_of_the_error() -> None:
    x, y = data(1)
    found = fitted(x, y, intercept=False)
    whole, _ = solved_anew(x, y, (0, 1, 2, 3), False)
    for channel in range(4):
        kept = tuple(c for c in range(4) if c != channel)
        rise = solved_anew(x, y, kept, False)[0] - whole
        assert found.problem.cost(channel) * np.sum(y**2) == pytest.approx(rise, rel=1e-6)


def test_eliminate_decides_on_all_readers_together() -> None:
    x, y = data(2)
    problems = [fitted(x, y[:, :1], True).problem, fitted(x, y[:, 1:] * 100, True).problem]
    costs = [sum(problem.cost(c) for problem in problems) for c in range(4)]
    assert eliminate(problems, 1) == [int(np.argmin(costs))]


def test_ridge_keeps_the_solution_near_its_start_where_data_says_nothing() -> None:
    x, y = data(4)
    x[:, 5] = 0.0
    moments = Moments(8, 3)
    moments.add(x, y)
    start = np.random.default_rng(5).normal(size=(8, 3))
    found = fit(moments, start, BLOCKS, intercept=False, ridge=1e-3)
    np.testing.assert_allclose(found.problem.solution[5], start[5], rtol=1e-6)
