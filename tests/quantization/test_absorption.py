from __future__ import annotations

import numpy as np

from shrink.quantization.rounding import Moments, absorbing_weights, corrected_bias


def inputs(noise: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = 2 + random.normal(size=(400, 6)) @ random.normal(size=(6, 6))
    return x, x @ (np.eye(6) + noise * random.normal(size=(6, 6))) + noise


def moments_of(x: np.ndarray, now: np.ndarray) -> Moments:
    moments = Moments.zeros(x.shape[1])
    moments.add(x[:150], now[:150])
    moments.add(x[150:], now[150:])
    return moments


def test_moments_are_numpys_covariances_when_added_in_parts() -> None:
    x, now = inputs(0.2)
    both = np.cov(x.T, now.T, bias=True)
    np.testing.assert_allclose(moments_of(x, now).cross_covariance(), both[:6, 6:])
    np.testing.assert_allclose(moments_of(x, now).covariance_now(), both[6:, 6:])


def test_absorbing_weights_are_the_weights_when_inputs_are_unchanged() -> None:
    x, _ = inputs(0.0)
    weights = np.random.default_rng(1).normal(size=(3, 6))
    np.testing.assert_allclose(absorbing_weights(weights, moments_of(x, x)), weights)


def test_absorbing_weights_undo_most_of_a_linear_change_of_the_inputs() -> None:
    x, now = inputs(0.2)
    weights = np.random.default_rng(1).normal(size=(3, 6))
    moments = moments_of(x, now)
    absorbed = absorbing_weights(weights, moments)
    errors = [
        np.var(now @ w.T + corrected_bias(np.zeros(3), weights, w, moments) - x @ weights.T)
        for w in (absorbed, weights)
    ]
    assert errors[0] < 0.1 * errors[1]


def test_corrected_bias_keeps_the_mean_of_each_output() -> None:
    x, now = inputs(0.2)
    random = np.random.default_rng(1)
    weights, rounded, bias = random.normal(size=(3, 6)), random.normal(size=(3, 6)), np.ones(3)
    corrected = corrected_bias(bias, weights, rounded, moments_of(x, now))
    before = (x @ weights.T + bias).mean(axis=0)
    np.testing.assert_allclose((now @ rounded.T + corrected).mean(axis=0), before)
