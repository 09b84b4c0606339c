"""Weights of a few int8 codes for each kernel, chosen for little error in the outputs.

The codes of a kernel, weights over the scale of their channel, share one table of 2 to 128 values.
It is fitted to them by weighted k-means; each weight then takes one of its values by GPTQ, which
lets the weights after it make up for the error, and by coordinate descent. To take the nearest
value instead costs far more: a weight's error would stay as it is.

Frantar et al. 2022, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", equations 2 and 3, with a table for the grid.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shrink.quantization.calibration import Batches
from shrink.quantization.edge_quantizer import Weighted, weighted_operators
from shrink.quantization.rounding import (
    Constants,
    absorbing_weights,
    can_be_rounded,
    corrected_bias,
    damped,
    measure_moments,
    min_max_scales,
)
from shrink.tflite.edit import with_constants

_TOP = 127
_WEIGHTS, _BIAS = 1, 2
_LEAST_WEIGHTS = 1024
"""A kernel of fewer weights would save less than its table and operator take."""
_MOST_FITTED = 50_000
_STEPS, _SWEEPS = 40, 10


def fit_table(codes: np.ndarray, importance: np.ndarray, size: int, zero: bool) -> np.ndarray:
    """Return the codes that a kernel may have, by weighted k-means on the line (Lloyd 1982).

    Args:
        codes: float (channels, n), weights over their scales.
        importance: (channels, n) weights of the squared errors.
        size: of the table, at least 4.
        zero: whether 0 is one of them, for weights that an earlier stage made zero.

    Returns:
        int64, sorted, at most `size` of -127 to 127, both of these among them.
    """
    fixed = np.array([-_TOP, _TOP] + [0] * zero, float)
    order = np.argsort(codes, axis=None)
    order = order[:: max(1, len(order) // _MOST_FITTED)]
    points, mass = codes.ravel()[order], importance.ravel()[order] + 1e-12
    free = size - len(fixed)
    ranks = np.cumsum(mass) / mass.sum()
    centres = points[np.searchsorted(ranks, (np.arange(free) + 0.5) / free)]
    for _ in range(_STEPS):
        table = np.sort(np.concatenate([fixed, centres]))
        nearest = np.searchsorted((table[1:] + table[:-1]) / 2, points)
        masses = np.bincount(nearest, mass, len(table))
        sums = np.bincount(nearest, mass * points, len(table))
        means = np.where(masses > 0, sums / np.maximum(masses, 1e-300), table)
        moving = ~np.isin(table, fixed)
        centres = np.append(means[moving], np.zeros(free))[:free]
    return np.unique(np.rint(np.clip(np.concatenate([fixed, centres]), -_TOP, _TOP))).astype(int)


def table_round(
    weights: np.ndarray,
    hessian: np.ndarray,
    scales: np.ndarray,
    table: np.ndarray,
    pruned: np.ndarray,
) -> np.ndarray:
    """Return codes of the table for weights, with little error in the outputs.

    Args:
        weights: (channels, n).
        hessian: (n, n) second moments of the n inputs.
        scales: (channels,). A channel whose largest weight is 127 of them keeps that code, so that
            a quantizer that takes scales from the largest weight finds the same ones again.
        table: sorted integers; -127 and 127 among them, and 0 where any weight is pruned.
        pruned: bool (channels, n), weights that stay 0.

    Returns:
        int64 (channels, n).
    """
    order = np.argsort(-np.diag(hessian), kind="stable")
    factor = np.linalg.cholesky(np.linalg.inv(damped(hessian[np.ix_(order, order)]))).T
    fixed = _anchors(weights, scales, pruned)
    left = weights[:, order].astype(np.float64)
    codes = np.zeros(left.shape, int)
    for column, place in enumerate(order):
        chosen = nearest_of(table, left[:, column] / scales)
        chosen = np.where(fixed[:, place] != 0, fixed[:, place], chosen)
        codes[:, column] = np.where(pruned[:, place], 0, chosen)
        error = (left[:, column] - codes[:, column] * scales) / factor[column, column]
        left[:, column + 1 :] -= np.outer(error, factor[column, column + 1 :])
    result = np.empty_like(codes)
    result[:, order] = codes
    return _descended(weights, result, hessian, scales, table, pruned | (fixed != 0))


def nearest_of(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the value of a sorted table that is nearest to each code."""
    return table[np.searchsorted((table[1:] + table[:-1]) / 2, codes)]


def _anchors(weights: np.ndarray, scales: np.ndarray, pruned: np.ndarray) -> np.ndarray:
    """Return 127 or -127 where a channel's largest weight stands for its scale, elsewhere 0."""
    kept = np.abs(weights) * ~pruned
    rows, places = np.arange(len(weights)), kept.argmax(axis=1)
    reached = kept[rows, places] >= (1 - 1e-6) * _TOP * scales
    anchors = np.zeros(weights.shape, int)
    anchors[rows, places] = np.where(weights[rows, places] < 0, -_TOP, _TOP) * reached
    return anchors


def _descended(
    weights: np.ndarray,
    codes: np.ndarray,
    hessian: np.ndarray,
    scales: np.ndarray,
    table: np.ndarray,
    fixed: np.ndarray,
) -> np.ndarray:
    """Return codes whose error no other code of a single weight would lower, in a few sweeps."""
    curvature = damped(hessian)
    codes = codes.copy()
    gradient = (codes * scales[:, None] - weights) @ curvature
    for _ in range(_SWEEPS):
        before = codes.copy()
        for column in np.argsort(-np.diag(curvature), kind="stable"):
            best = codes[:, column] - gradient[:, column] / curvature[column, column] / scales
            change = nearest_of(table, best) - codes[:, column]
            moved = np.flatnonzero((change != 0) & ~fixed[:, column])
            codes[moved, column] += change[moved]
            gradient[moved] += np.outer(change[moved] * scales[moved], curvature[column])
        if np.array_equal(codes, before):
            break
    return codes


def tabled_model(content: bytes, bits: int, batches: Batches, dense_per_tensor: bool) -> bytes:
    """Return a float model whose kernels have codes of one table each, once they are int8.

    Each operator is given weights that absorb the errors of those before it, codes, and the bias
    that keeps its mean. Depthwise convolutions and small kernels stay as they are.

    Args:
        content: a float .tflite model.
        bits: of an index into a table, 2 to 7.
        batches: unlabelled examples, read once per operator.
        dense_per_tensor: whether dense layers will have one scale.
    """
    constants: dict[tuple[int, int], np.ndarray] = {}
    current = content
    for operator in weighted_operators(content):
        if operator.matrix.size < _LEAST_WEIGHTS or not can_be_rounded(operator):
            continue
        one_scale = dense_per_tensor and operator.kind == "FULLY_CONNECTED"
        constants |= _tabled(operator, bits, content, current, batches, one_scale)
        current = with_constants(content, constants)
    return current


def _tabled(
    operator: Weighted, bits: int, content: bytes, current: bytes, batches: Batches, one_scale: bool
) -> Mapping[tuple[int, int], np.ndarray]:
    moments = measure_moments(content, current, operator, batches)
    pruned = operator.matrix == 0  # zeros that an earlier stage promised to keep
    target = np.where(pruned, 0.0, absorbing_weights(operator.matrix, moments))
    spread = moments.covariance_now()
    scales = min_max_scales(target, 8)
    if one_scale:
        scales = np.full_like(scales, scales.max())
    importance = np.outer(scales**2, np.diag(spread)) * ~pruned
    zero = bool(pruned.any())
    table = fit_table(target / scales[:, None], importance, 1 << bits, zero)
    rounded = table_round(target, spread, scales, table, pruned) * scales[:, None]
    constants: Constants = {(operator.index, _WEIGHTS): rounded.reshape(operator.weights.shape)}
    if operator.bias is not None:
        bias = corrected_bias(operator.bias, operator.matrix, rounded, moments)
        constants[operator.index, _BIAS] = bias
    return constants
