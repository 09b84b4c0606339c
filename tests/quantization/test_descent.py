from __future__ import annotations

import itertools

import numpy as np

from shrink.quantization.gptq import damped, descend, gptq_round, mse_scales, round_to_nearest
from shrink.quantization.rounding import Moments
from tests.quantization.test_gptq import output_error, problem


def test_descend_ends_where_no_single_code_lowers_the_error() -> None:
    weights, hessian = problem(4, 12)
    scales = mse_scales(weights, 4)
    pruned = np.zeros(weights.shape, bool)
    start = gptq_round(weights, hessian, scales, 4)
    found = descend(weights, start, hessian, scales, 4, pruned)
    damped = hessian + 0.01 * np.diag(hessian).mean() * np.eye(12)
    least = output_error(weights, found, damped)
    anchors = np.abs(weights).argmax(axis=1)
    for channel, column in itertools.product(range(4), range(12)):
        if column == anchors[channel]:
            continue
        for code in range(-7, 8):
            other = found.copy()
            other[channel, column] = code * scales[channel]
            assert output_error(weights, other, damped)[channel] >= least[channel] - 1e-12


def test_descend_errs_less_than_it_began_with_and_keeps_grids_and_scales() -> None:
    weights, hessian = problem(32, 40)
    scales = mse_scales(weights, 4)
    pruned = np.random.default_rng(1).random(weights.shape) < 0.3
    weights = np.where(pruned, 0.0, weights)
    start = gptq_round(weights, hessian, scales, 4, pruned)
    found = descend(weights, start, hessian, scales, 4, pruned)
    errors = [output_error(weights, one, hessian).sum() for one in (start, found)]
    assert errors[1] < 0.97 * errors[0]
    assert not found[pruned].any()
    np.testing.assert_allclose(np.abs(found).max(axis=1) / 7, scales)
    codes = found / scales[:, None]
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-9)


def test_descend_errs_less_than_nearest_codes_when_inputs_lie_far_from_zero() -> None:
    random = np.random.default_rng(0)
    x = (random.normal(size=(2000, 16)) @ random.normal(size=(16, 16))).astype(np.float32) + 5000
    weights = random.normal(size=(8, 16))
    moments = Moments.zeros(16)
    for rows in np.split(x, 10):
        moments.add(rows, rows)
    spread = moments.covariance_now()
    np.testing.assert_allclose(spread, np.cov(x.astype(float), rowvar=False, bias=True), rtol=1e-3)
    scales = mse_scales(weights, 4, np.diag(spread))
    nearest = round_to_nearest(weights, scales, 4)
    start = gptq_round(weights, spread, scales, 4)
    found = descend(weights, start, spread, scales, 4, np.zeros(weights.shape, bool))
    errors = [output_error(weights, one, damped(spread)).sum() for one in (nearest, start, found)]
    assert errors[2] < errors[1] < errors[0]


def test_descend_stays_near_on_moments_that_are_not_semidefinite() -> None:
    weights, hessian = problem(8, 16)
    values, vectors = np.linalg.eigh(hessian)
    values[:4] = -0.05 * values.max()
    indefinite = (vectors * values) @ vectors.T
    semidefinite = (vectors * np.maximum(values, 0.0)) @ vectors.T
    scales = mse_scales(weights, 4)
    pruned = np.zeros(weights.shape, bool)
    start = gptq_round(weights, indefinite, scales, 4)
    found = descend(weights, start, indefinite, scales, 4, pruned)
    errors = [output_error(weights, one, damped(semidefinite)).sum() for one in (start, found)]
    assert errors[1] < errors[0]


def test_descend_leaves_the_nearest_codes_when_inputs_are_uncorrelated() -> None:
    weights, _ = problem(6, 20)
    scales = mse_scales(weights, 4)
    nearest = round_to_nearest(weights, scales, 4)
    found = descend(weights, nearest, np.eye(20), scales, 4, np.zeros(weights.shape, bool))
    np.testing.assert_allclose(found, nearest, atol=1e-12)
