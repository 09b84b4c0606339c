"""Kernels of few codes: tables by hand, and rounding against the nearest code."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tf_keras as keras

from shrink.quantization.calibration import least_squares_ranges
from shrink.quantization.edge_quantizer import quantize
from shrink.quantization.rounding import (
    descend,
    fit_table,
    fixed_codes,
    gptq_codes,
    nearest_of,
    rounded_model,
)
from shrink.tflite.convert import convert
from shrink.tflite.interpreter import load
from shrink.tflite.model import values
from shrink.tflite.weights import weights as weights_of


def test_a_table_has_the_codes_that_there_are() -> None:
    codes = np.repeat([[-127.0, -40.0, 9.0, 127.0]], 50, axis=0)
    assert fit_table(codes, np.ones_like(codes), 4, zero=False).tolist() == [-127, -40, 9, 127]


def test_a_table_keeps_zero_and_both_ends() -> None:
    codes = np.random.default_rng(0).normal(60, 5, (20, 30))
    table = fit_table(codes, np.ones_like(codes), 8, zero=True)
    assert {-127, 0, 127} <= set(table.tolist())
    assert len(table) <= 8
    others = [value for value in table.tolist() if abs(value) not in (0, 127)]
    assert all(40 < value < 80 for value in others)


def test_a_table_lies_where_errors_count() -> None:
    codes = np.tile(np.linspace(-100, 100, 401), (2, 1))
    importance = np.where(codes > 0, 1.0, 1e-6)
    table = fit_table(codes, importance, 8, zero=False)
    assert sum(table > 0) >= 6


def test_nearest_of_is_the_least_distance() -> None:
    table = np.array([-127, -3, 0, 8, 127])
    codes = np.linspace(-130, 130, 521) + 0.1
    wanted = table[np.abs(codes[:, None] - table).argmin(axis=1)]
    assert np.array_equal(nearest_of(table, codes), wanted)


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (3, 5), correlated second moments, and scales that hold the largest weights."""
    rng = np.random.default_rng(4)
    weights, inputs = rng.normal(size=(3, 5)), rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5))
    return weights, inputs.T @ inputs / 200, np.abs(weights).max(axis=1) / 127


def table_round(
    weights: np.ndarray,
    hessian: np.ndarray,
    scales: np.ndarray,
    table: np.ndarray,
    pruned: np.ndarray,
) -> np.ndarray:
    fixed = fixed_codes(weights, scales, 127, pruned)
    codes = gptq_codes(weights, hessian, scales, table, fixed)
    return descend(weights, codes, hessian, scales, table, fixed)


def error(weights: np.ndarray, found: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    difference = weights - found
    return np.einsum("ci,ij,cj->c", difference, hessian, difference)


def test_rounding_comes_near_the_best_codes_that_there_are() -> None:
    weights, hessian, scales = problem()
    table = np.array([-127, -30, 20, 127])
    none = np.zeros(weights.shape, bool)
    codes = table_round(weights, hessian, scales, table, none)
    assert set(codes.ravel().tolist()) <= set(table.tolist())
    found = error(weights, codes * scales[:, None], hessian)
    nearest = nearest_of(table, weights / scales[:, None]) * scales[:, None]
    assert found.sum() < error(weights, nearest, hessian).sum()
    for channel in range(3):
        anchor = np.abs(weights[channel]).argmax()
        tried = np.array([t for t in itertools.product(table, repeat=5) if abs(t[anchor]) == 127])
        rows = np.repeat(weights[channel : channel + 1], len(tried), axis=0)
        best = error(rows, tried * scales[channel], hessian).min()
        assert found[channel] <= 2 * best + 1e-9


def test_the_largest_weight_keeps_the_largest_code_and_pruned_ones_stay_zero() -> None:
    weights, hessian, scales = problem()
    pruned = np.zeros(weights.shape, bool)
    pruned[:, 2] = True
    pruned[:, np.abs(weights).argmax(axis=1)] = False
    weights = np.where(pruned, 0, weights)
    codes = table_round(weights, hessian, scales, np.array([-127, -9, 0, 50, 127]), pruned)
    assert not codes[pruned].any()
    rows = np.arange(3)
    places = np.abs(weights).argmax(axis=1)
    assert codes[rows, places].tolist() == (127 * np.sign(weights[rows, places])).tolist()


@pytest.mark.parametrize("count", [4, 16, 128])
def test_a_table_is_never_longer_than_asked_for(count: int) -> None:
    codes = np.random.default_rng(count).uniform(-127, 127, (64, 64))
    table = fit_table(codes, np.ones_like(codes), count, zero=True)
    assert len(table) <= count
    assert np.array_equal(table, np.unique(table))


def test_the_int8_codes_of_a_model_are_those_of_one_table_a_kernel() -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.layers.Input((48,), name="x")
    hidden = keras.layers.Dense(32, activation="relu")(inputs)
    content = convert(keras.Model(inputs, keras.layers.Dense(40)(hidden)), "float32").content
    given = np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32)
    batches = [{"x": given}]
    tabled = rounded_model(content, {}, batches, 3)
    ranges = least_squares_ranges(tabled, batches)
    static = quantize(tabled, "static", ranges=ranges, activation_bits=8)
    codes = [values(one) for one in weights_of(static) if len(one.shape) == 2]
    assert len(codes) == 2
    for found in codes:
        assert found is not None
        assert len(np.unique(found)) <= 8
    wanted = load(content).predict(given)[0]
    plain = quantize(content, "static", ranges=least_squares_ranges(content, batches))
    error = np.mean((load(static).predict(given)[0] - wanted) ** 2)
    assert error < 0.1 * np.mean(wanted**2)
    dense = values(weights_of(plain)[0])
    assert dense is not None
    assert len(np.unique(dense)) > 8
