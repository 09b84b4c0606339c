from __future__ import annotations

import numpy as np
import pytest

from shrink.quantization.gptq import min_max_scales, mse_scales, round_to_nearest


def test_min_max_scales_put_the_largest_weight_on_the_largest_code() -> None:
    weights = np.array([[0.7, -1.4], [127.0, 3.0]])
    np.testing.assert_allclose(min_max_scales(weights, 4), [0.2, 127 / 7])
    np.testing.assert_allclose(min_max_scales(weights, 8), [1.4 / 127, 1.0])


def test_round_to_nearest_clips_to_the_symmetric_range() -> None:
    rounded = round_to_nearest(np.array([[0.26, -9.0, 9.0]]), np.array([0.5]), 4)
    np.testing.assert_allclose(rounded, [[0.5, -3.5, 3.5]])


@pytest.mark.parametrize("bits", [4, 8])
def test_mse_scales_keep_a_channel_that_lies_on_its_grid(bits: int) -> None:
    top = 2 ** (bits - 1) - 1
    weights = 0.25 * np.arange(-top, top + 1)[None]
    np.testing.assert_allclose(mse_scales(weights, bits), [0.25])


def test_mse_scales_clip_an_outlier_among_many_small_weights() -> None:
    random = np.random.default_rng(0)
    weights = np.append(random.normal(size=400), 8.0)[None]
    scales = mse_scales(weights, 4)
    assert scales[0] < 0.8 * min_max_scales(weights, 4)[0]
    errors = [
        ((round_to_nearest(weights, np.array([s]), 4) - weights) ** 2).sum()
        for s in (scales[0], min_max_scales(weights, 4)[0])
    ]
    assert errors[0] < errors[1]


def test_mse_scales_keep_the_outlier_where_it_alone_is_important() -> None:
    weights = np.append(np.random.default_rng(0).normal(size=400), 8.0)[None]
    importance = np.append(np.zeros(400), 1.0)
    np.testing.assert_allclose(mse_scales(weights, 4, importance), min_max_scales(weights, 4))
