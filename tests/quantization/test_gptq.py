from __future__ import annotations

import itertools

import numpy as np

from shrink.quantization.gptq import gptq_round, min_max_scales, mse_scales, round_to_nearest


def problem(channels: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(500, inputs)) @ random.normal(size=(inputs, inputs))
    return random.normal(size=(channels, inputs)), x.T @ x / 500


def output_error(weights: np.ndarray, rounded: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    difference = rounded - weights
    return np.einsum("ci,ij,cj->c", difference, hessian, difference)


def test_gptq_round_is_rounding_to_nearest_when_inputs_are_uncorrelated() -> None:
    weights, _ = problem(6, 20)
    scales = min_max_scales(weights, 4)
    rounded = gptq_round(weights, np.eye(20), scales, 4)
    np.testing.assert_allclose(rounded, round_to_nearest(weights, scales, 4), atol=1e-12)


def test_gptq_round_errs_a_third_less_than_rounding_to_nearest_when_inputs_are_correlated() -> None:
    weights, hessian = problem(16, 40)
    scales = mse_scales(weights, 4)
    plain = output_error(weights, round_to_nearest(weights, scales, 4), hessian).sum()
    ours = output_error(weights, gptq_round(weights, hessian, scales, 4), hessian).sum()
    assert ours < 0.67 * plain


def test_gptq_round_comes_near_the_best_of_all_roundings() -> None:
    weights, hessian = problem(4, 5)
    scales = min_max_scales(weights, 4)
    codes = np.array(list(itertools.product(range(-7, 8), repeat=5)))
    for row, scale in zip(weights, scales, strict=True):
        every = output_error(row, codes * scale, hessian)
        ours = gptq_round(row[None], hessian, np.array([scale]), 4)
        nearest = round_to_nearest(row[None], np.array([scale]), 4)
        assert every.min() <= output_error(row[None], ours, hessian)[0] + 1e-12
        limit = max(4 * every.min(), output_error(row[None], nearest, hessian)[0])
        assert output_error(row[None], ours, hessian)[0] <= limit + 1e-12


def test_gptq_round_gives_weights_from_whose_maximum_the_scales_follow_again() -> None:
    weights, hessian = problem(32, 40)
    scales = mse_scales(weights, 4)
    rounded = gptq_round(weights, hessian, scales, 4)
    np.testing.assert_allclose(np.abs(rounded).max(axis=1) / 7, scales)
    codes = rounded / scales[:, None]
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-9)


def test_gptq_round_survives_inputs_that_are_always_zero() -> None:
    weights, _ = problem(3, 4)
    rounded = gptq_round(weights, np.zeros((4, 4)), min_max_scales(weights, 4), 4)
    np.testing.assert_allclose(rounded, round_to_nearest(weights, min_max_scales(weights, 4), 4))


def test_gptq_round_keeps_pruned_weights_at_zero() -> None:
    weights, hessian = problem(16, 40)
    pruned = np.random.default_rng(1).random(weights.shape) < 0.5
    weights = np.where(pruned, 0.0, weights)
    scales = mse_scales(weights, 4)
    rounded = gptq_round(weights, hessian, scales, 4, pruned)
    assert not rounded[pruned].any()
    np.testing.assert_allclose(np.abs(rounded).max(axis=1) / 7, scales)
    plain = output_error(weights, round_to_nearest(weights, scales, 4), hessian).sum()
    assert output_error(weights, rounded, hessian).sum() < plain


def test_gptq_round_survives_moments_that_rounding_made_indefinite() -> None:
    weights, hessian = problem(6, 20)
    values, vectors = np.linalg.eigh(hessian)
    values[:3] = -0.02 * values.mean()  # more than the damping makes up for
    indefinite = (vectors * values) @ vectors.T
    semidefinite = (vectors * np.maximum(values, 0.0)) @ vectors.T
    scales = mse_scales(weights, 4)
    rounded = gptq_round(weights, indefinite, scales, 4)
    np.testing.assert_allclose(rounded, gptq_round(weights, semidefinite, scales, 4), atol=1e-9)
