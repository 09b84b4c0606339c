"""Predictions against the textbook's formulas, and what they say of points near and far."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shrink.base.types import Array
from shrink.search import surrogate
from shrink.search.surrogate import Described, predict


def point(size: float, **settings: float | str) -> Described:
    return Described(settings, {"tflite_bytes": size})


TRAINED = [point(100_000), point(50_000), point(20_000), point(8_000)]
COSTS = [-0.99, -0.985, -0.97, -0.90]
ASKED = [point(30_000), point(8_000), point(2_000)]


def matern(a: Array, b: Array, length: float) -> Array:
    r = math.sqrt(5) * np.abs(a[:, None] - b[None, :]) / length
    return np.asarray((1 + r + r**2 / 3) * np.exp(-r))


def by_the_textbook(length: float, noise: float, rest: float) -> tuple[Array, Array, float]:
    """Return mean, variance and log likelihood: Rasmussen & Williams, 2.25, 2.26 and 2.30."""

    def kernel(a: Array, b: Array) -> Array:
        trend = 0.25 * np.outer(a - x[0], b - x[0])
        return np.asarray(trend + rest * matern(a, b, length))

    x, new = (
        np.log([float(one.figures["tflite_bytes"] or 0) for one in some])
        for some in (TRAINED, ASKED)
    )
    y = np.asarray(COSTS)
    unit = math.sqrt((((y - y[0]) ** 2).sum() + 2 * (0.05 * 0.99) ** 2) / (len(y) + 2))
    z = (y - y[0]) / unit
    inverse = np.linalg.inv(kernel(x, x) + noise * np.eye(len(x)))
    cross = kernel(x, new)
    variance = np.diag(kernel(new, new)) - np.einsum("ij,ik,kj->j", cross, inverse, cross)
    determinant = np.linalg.slogdet(np.linalg.inv(inverse))[1]
    likelihood = -0.5 * (z @ inverse @ z + determinant + len(z) * math.log(2 * math.pi))
    return y[0] + unit * cross.T @ inverse @ z, unit**2 * variance, float(likelihood)


def set_grid(patch: pytest.MonkeyPatch, lengths: tuple[float, ...]) -> None:
    patch.setattr(surrogate, "_OF_SIZES", lengths)
    patch.setattr(surrogate, "_OF_NUMBERS", (1.0,))
    patch.setattr(surrogate, "_OF_KINDS", (1.0,))
    patch.setattr(surrogate, "_NOISES", (0.01,))
    patch.setattr(surrogate, "_OF_THE_REST", (0.3,))


def test_one_scale_predicts_what_the_textbook_says(monkeypatch: pytest.MonkeyPatch) -> None:
    set_grid(monkeypatch, (0.8,))
    mean, deviation = predict(TRAINED, COSTS, ASKED, ["tflite_bytes"])
    wanted, variance, _ = by_the_textbook(0.8, 0.01, 0.3)
    np.testing.assert_allclose(mean, wanted, rtol=0, atol=1e-10)
    np.testing.assert_allclose(deviation**2, variance, rtol=0, atol=1e-10)


def test_scales_count_by_their_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    set_grid(monkeypatch, (0.8, 2.5))
    mean, deviation = predict(TRAINED, COSTS, ASKED, ["tflite_bytes"])
    one, other = by_the_textbook(0.8, 0.01, 0.3), by_the_textbook(2.5, 0.01, 0.3)
    share = 1 / (1 + math.exp(other[2] - one[2]))
    wanted = share * one[0] + (1 - share) * other[0]
    squares = share * (one[1] + one[0] ** 2) + (1 - share) * (other[1] + other[0] ** 2)
    np.testing.assert_allclose(mean, wanted, rtol=0, atol=1e-10)
    np.testing.assert_allclose(deviation**2, squares - wanted**2, rtol=0, atol=1e-10)


def test_what_is_near_is_known_better_than_what_is_far() -> None:
    mean, deviation = predict(TRAINED, COSTS, ASKED, ["tflite_bytes"])
    assert deviation[1] < deviation[0] < deviation[2]
    assert mean[1] == pytest.approx(-0.90, abs=0.01)


def test_a_metric_that_falls_with_the_size_falls_on_where_nothing_was_trained() -> None:
    steep, _ = predict(TRAINED, [-0.90, -0.78, -0.60, -0.45], ASKED, ["tflite_bytes"])
    assert -0.78 < steep[0] < -0.60
    assert steep[2] > -0.40
    flat, _ = predict(TRAINED, [-0.90, -0.90, -0.899, -0.898], ASKED, ["tflite_bytes"])
    assert flat[2] == pytest.approx(-0.90, abs=0.01)


def test_settings_tell_points_of_one_size_apart() -> None:
    trained = [
        point(100, scheme="a", ratio=0.5),
        point(100, scheme="b", ratio=0.5),
        point(100, scheme="a", ratio=0.1),
        point(100, scheme="b", ratio=0.1),
    ]
    asked = [point(100, scheme="a", ratio=0.5), point(100, scheme="b", ratio=0.1)]
    mean, _ = predict(trained, [-0.9, -0.8, -0.9, -0.8], asked, ["tflite_bytes"])
    assert mean[0] < -0.88
    assert mean[1] > -0.82


def test_figures_and_settings_that_some_points_lack_are_no_obstacle() -> None:
    trained = [Described({}, {}), point(10, ratio=0.3, scheme="a"), point(1000, rate=1e-3)]
    trained.append(point(2000, rate=1.0))
    mean, deviation = predict(trained, [-0.9, -0.8, -0.7, -0.6], [point(50)], ["tflite_bytes"])
    assert -0.95 < mean[0] < -0.55
    assert deviation[0] > 0
    only = predict([Described({}, {})], [-0.9], [Described({"a": 1}, {})], [])
    assert only[0][0] == pytest.approx(-0.9)
