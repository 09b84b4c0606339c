from __future__ import annotations

import itertools

import numpy as np
import pytest
import tf_keras as keras

from shrink.quantization import edge_quantizer
from shrink.quantization.edge_quantizer import weighted_operators
from shrink.quantization.rounding import (
    Moments,
    absorbing_weights,
    corrected_bias,
    damped,
    descend,
    fixed_codes,
    gptq_codes,
    min_max_scales,
    mse_scales,
    round_to_nearest,
    rounded_model,
)
from shrink.tflite.interpreter import load
from shrink.tflite.model import read, values
from tests.stages.quantize.toys import batches, cnn, float_cnn, images

FOUR = ("CONV_2D", "FULLY_CONNECTED")


def four_bits() -> dict[str, int]:
    return {o.name: 4 for o in weighted_operators(float_cnn()) if o.kind in FOUR}


def test_weighted_operators_have_rows_that_give_kerass_outputs() -> None:
    x = images(3)
    first = weighted_operators(float_cnn())[0]
    rows = first.rows(x, np.random.default_rng(0))
    outputs = np.maximum(rows @ first.matrix.T + first.bias, 0).reshape(3, 8, 8, 16)
    model = cnn()
    np.testing.assert_allclose(
        outputs, keras.Model(model.input, model.get_layer("first").output)(x), atol=1e-5
    )


def test_rounded_model_is_stored_as_the_same_numbers_of_4_bits() -> None:
    bits = four_bits()
    rounded = rounded_model(float_cnn(), bits, batches())
    stored = edge_quantizer.quantize(rounded, "dynamic", bits)
    wanted = {o.name: o for o in weighted_operators(rounded)}
    graph = read(stored)[0]
    seen = 0
    for operator in graph.operators:
        name = graph.tensors[operator.outputs[0]].name
        if name in bits:
            weights = graph.tensors[operator.inputs[1]]
            assert weights.dtype == "INT4"
            codes = values(weights)
            assert codes is not None
            real = codes.reshape(len(weights.scales), -1) * np.array(weights.scales)[:, None]
            np.testing.assert_allclose(real, wanted[name].matrix, rtol=1e-5, atol=1e-7)
            seen += 1
    assert seen == len(bits)


def test_rounded_model_halves_the_error_of_rounding_to_nearest() -> None:
    bits, x = four_bits(), images(200, seed=1)
    truth = load(float_cnn()).predict(x)[0]
    plain = edge_quantizer.quantize(float_cnn(), "weight_only", bits)
    ours = edge_quantizer.quantize(rounded_model(float_cnn(), bits, batches()), "weight_only", bits)
    errors = [float(np.mean((load(c).predict(x)[0] - truth) ** 2)) for c in (ours, plain)]
    assert errors[0] < 0.5 * errors[1]


def test_rounded_model_leaves_a_model_alone_when_nothing_gets_4_bits() -> None:
    assert rounded_model(float_cnn(), {}, batches()) is float_cnn()


def problem(channels: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(500, inputs)) @ random.normal(size=(inputs, inputs))
    return random.normal(size=(channels, inputs)), x.T @ x / 500


def output_error(weights: np.ndarray, rounded: np.ndarray, hessian: np.ndarray) -> np.ndarray:
    difference = rounded - weights
    return np.einsum("ci,ij,cj->c", difference, hessian, difference)


def gptq_round(
    weights: np.ndarray, hessian: np.ndarray, scales: np.ndarray, pruned: np.ndarray | None = None
) -> np.ndarray:
    """Weights on the grids of 4 bits."""
    none = np.zeros(weights.shape, bool)
    fixed = fixed_codes(weights, scales, 7, none if pruned is None else pruned)
    return gptq_codes(weights, hessian, scales, 7, fixed) * scales[:, None]


def descended(
    weights: np.ndarray,
    start: np.ndarray,
    hessian: np.ndarray,
    scales: np.ndarray,
    pruned: np.ndarray,
) -> np.ndarray:
    """The same after coordinate descent."""
    fixed = fixed_codes(weights, scales, 7, pruned)
    codes = np.rint(start / scales[:, None])
    return descend(weights, codes, hessian, scales, 7, fixed) * scales[:, None]


def test_gptq_round_is_rounding_to_nearest_when_inputs_are_uncorrelated() -> None:
    weights, _ = problem(6, 20)
    scales = min_max_scales(weights, 4)
    rounded = gptq_round(weights, np.eye(20), scales)
    np.testing.assert_allclose(rounded, round_to_nearest(weights, scales, 4), atol=1e-12)


def test_gptq_round_errs_a_third_less_than_rounding_to_nearest_when_inputs_are_correlated() -> None:
    weights, hessian = problem(16, 40)
    scales = mse_scales(weights, 4)
    plain = output_error(weights, round_to_nearest(weights, scales, 4), hessian).sum()
    ours = output_error(weights, gptq_round(weights, hessian, scales), hessian).sum()
    assert ours < 0.67 * plain


def test_gptq_round_comes_near_the_best_of_all_roundings() -> None:
    weights, hessian = problem(4, 5)
    scales = min_max_scales(weights, 4)
    codes = np.array(list(itertools.product(range(-7, 8), repeat=5)))
    for row, scale in zip(weights, scales, strict=True):
        every = output_error(row, codes * scale, hessian)
        ours = gptq_round(row[None], hessian, np.array([scale]))
        nearest = round_to_nearest(row[None], np.array([scale]), 4)
        assert every.min() <= output_error(row[None], ours, hessian)[0] + 1e-12
        limit = max(4 * every.min(), output_error(row[None], nearest, hessian)[0])
        assert output_error(row[None], ours, hessian)[0] <= limit + 1e-12


def test_gptq_round_gives_weights_from_whose_maximum_the_scales_follow_again() -> None:
    weights, hessian = problem(32, 40)
    scales = mse_scales(weights, 4)
    rounded = gptq_round(weights, hessian, scales)
    np.testing.assert_allclose(np.abs(rounded).max(axis=1) / 7, scales)
    codes = rounded / scales[:, None]
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-9)


def test_gptq_round_survives_inputs_that_are_always_zero() -> None:
    weights, _ = problem(3, 4)
    rounded = gptq_round(weights, np.zeros((4, 4)), min_max_scales(weights, 4))
    np.testing.assert_allclose(rounded, round_to_nearest(weights, min_max_scales(weights, 4), 4))


def test_gptq_round_keeps_pruned_weights_at_zero() -> None:
    weights, hessian = problem(16, 40)
    pruned = np.random.default_rng(1).random(weights.shape) < 0.5
    weights = np.where(pruned, 0.0, weights)
    scales = mse_scales(weights, 4)
    rounded = gptq_round(weights, hessian, scales, pruned)
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
    rounded = gptq_round(weights, indefinite, scales)
    np.testing.assert_allclose(rounded, gptq_round(weights, semidefinite, scales), atol=1e-9)


def test_descend_ends_where_no_single_code_lowers_the_error() -> None:
    weights, hessian = problem(4, 12)
    scales = mse_scales(weights, 4)
    pruned = np.zeros(weights.shape, bool)
    start = gptq_round(weights, hessian, scales)
    found = descended(weights, start, hessian, scales, pruned)
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
    pruned = np.random.default_rng(1).random(weights.shape) < 0.3
    weights = np.where(pruned, 0.0, weights)
    scales = mse_scales(weights, 4)
    start = gptq_round(weights, hessian, scales, pruned)
    found = descended(weights, start, hessian, scales, pruned)
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
    start = gptq_round(weights, spread, scales)
    found = descended(weights, start, spread, scales, np.zeros(weights.shape, bool))
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
    start = gptq_round(weights, indefinite, scales)
    found = descended(weights, start, indefinite, scales, pruned)
    errors = [output_error(weights, one, damped(semidefinite)).sum() for one in (start, found)]
    assert errors[1] < errors[0]


def test_descend_leaves_the_nearest_codes_when_inputs_are_uncorrelated() -> None:
    weights, _ = problem(6, 20)
    scales = mse_scales(weights, 4)
    nearest = round_to_nearest(weights, scales, 4)
    found = descended(weights, nearest, np.eye(20), scales, np.zeros(weights.shape, bool))
    np.testing.assert_allclose(found, nearest, atol=1e-12)


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
