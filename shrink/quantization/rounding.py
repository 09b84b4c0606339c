"""Scales and rounding of weights before conversion, by GPTQ and coordinate descent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shrink.base.types import Array
from shrink.quantization.calibration import Batches
from shrink.quantization.edge_quantizer import MATRIX_OPERATORS, Weighted, weighted_operators
from shrink.tflite.edit import exposing, with_constants
from shrink.tflite.interpreter import load
from shrink.tflite.model import read
from shrink.tflite.names import Named, ordered

_RATIOS = np.linspace(0.3, 1.0, 36)
_SMALLEST = 1e-12


def largest_code(bits: int) -> int:
    """Return the largest code of a symmetric integer type: 7 for 4 bits, 127 for 8."""
    return int(2 ** (bits - 1) - 1)


def min_max_scales(weights: np.ndarray, bits: int) -> np.ndarray:
    """Return the scale of each channel that just holds its largest weight, float64 (channels,)."""
    return np.maximum(np.abs(weights).max(axis=1), _SMALLEST) / largest_code(bits)


def mse_scales(weights: np.ndarray, bits: int, importance: np.ndarray | float = 1.0) -> np.ndarray:
    """Return the scale of each channel with the least squared error of rounding to nearest.

    Searched are 36 clipping thresholds from 0.3 to 1.0 of the channel's largest weight (Nagel et
    al. 2021, "A White Paper on Neural Network Quantization", section 3.1).

    Args:
        weights: (channels, n).
        bits: of the symmetric integer type.
        importance: (n,) weights of the squared errors, such as the inputs' second moments.

    Returns:
        float64 (channels,).
    """
    largest = min_max_scales(weights, bits)
    best, least = largest.copy(), np.full(len(weights), np.inf)
    for ratio in _RATIOS[::-1]:
        scales = ratio * largest
        error = (importance * (round_to_nearest(weights, scales, bits) - weights) ** 2).sum(axis=1)
        better = error < least
        best[better], least[better] = scales[better], error[better]
    return best


def round_to_nearest(weights: np.ndarray, scales: np.ndarray, bits: int) -> np.ndarray:
    """Return weights (channels, n) on the grid of each channel's scale, clipped to its ends."""
    top = largest_code(bits)
    return np.clip(np.rint(weights / scales[:, None]), -top, top) * scales[:, None]


_DAMPING = 0.01


def fixed_codes(weights: np.ndarray, scales: np.ndarray, top: int, pruned: np.ndarray) -> Array:
    """Return codes that are decided beforehand, (channels, n), NaN for all others.

    Pruned weights are 0. The largest weight of each channel, if its scale is as large as that,
    keeps the largest code, so that a quantizer that takes scales from the largest weight finds the
    same ones again.
    """
    fixed = np.where(pruned, 0.0, np.nan)
    kept = np.abs(weights) * ~pruned
    rows, places = np.arange(len(weights)), kept.argmax(axis=1)
    reached = kept[rows, places] >= (1 - 1e-6) * top * scales
    signs = np.where(weights[rows, places] < 0, -top, top)
    fixed[rows[reached], places[reached]] = signs[reached]
    return fixed


def gptq_codes(
    weights: np.ndarray, hessian: np.ndarray, scales: np.ndarray, top: int, fixed: Array
) -> np.ndarray:
    """Return codes of weights, over the scale of their channel, with little error in the outputs.

    Frantar et al. 2022, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
    Transformers", equations 2 and 3, in descending order of the inputs' second moments.

    Args:
        weights: (channels, n).
        hessian: (n, n) second moments of the n inputs, around their mean where a bias takes up
            the mean error.
        scales: (channels,) at most the largest weight over the largest code.
        top: the largest code.
        fixed: see `fixed_codes`.

    Returns:
        float64 (channels, n).
    """
    order = np.argsort(-np.diag(hessian), kind="stable")
    left = weights[:, order].astype(np.float64)
    factor = np.linalg.cholesky(np.linalg.inv(damped(hessian[np.ix_(order, order)]))).T
    codes = np.empty_like(left)
    for column, place in enumerate(order):
        nearest = np.clip(np.rint(left[:, column] / scales), -top, top)
        codes[:, place] = np.where(np.isnan(fixed[:, place]), nearest, fixed[:, place])
        error = (left[:, column] - codes[:, place] * scales) / factor[column, column]
        left[:, column + 1 :] -= np.outer(error, factor[column, column + 1 :])
    return codes


def damped(hessian: np.ndarray) -> np.ndarray:
    """Return second moments with a hundredth of their mean added to each, positive definite."""
    heavier = _heavier(hessian)
    try:
        np.linalg.cholesky(heavier)
    except np.linalg.LinAlgError:
        # Moments around a mean that is large beside them have rounding errors of their own size.
        values, vectors = np.linalg.eigh(hessian)
        return _heavier((vectors * np.maximum(values, 0.0)) @ vectors.T)
    return heavier


def _heavier(hessian: np.ndarray) -> np.ndarray:
    damping = _DAMPING * float(np.mean(np.diag(hessian))) or 1.0
    return hessian + damping * np.eye(len(hessian))


_SWEEPS = 20


def descend(
    weights: np.ndarray,
    codes: np.ndarray,
    hessian: np.ndarray,
    scales: np.ndarray,
    top: int,
    fixed: Array,
) -> np.ndarray:
    """Return codes with an error no single other code would lower, after 20 sweeps at the latest.

    Cyclic coordinate descent (Nair and Suggala 2024, "CDQuant: Greedy Coordinate Descent for
    Accurate LLM Quantization") on the error that `gptq_codes` looks ahead for; see there.
    """
    curvature, codes = damped(hessian), codes.copy()
    gradient = (codes * scales[:, None] - weights) @ curvature
    for _ in range(_SWEEPS):
        before = codes.copy()
        for column in np.argsort(-np.diag(curvature), kind="stable"):
            best = codes[:, column] - gradient[:, column] / curvature[column, column] / scales
            change = np.clip(np.rint(best), -top, top) - codes[:, column]
            moved = np.flatnonzero((change != 0) & np.isnan(fixed[:, column]))
            codes[moved, column] += change[moved]
            gradient[moved] += np.outer(change[moved] * scales[moved], curvature[column])
        if np.array_equal(codes, before):
            break
    return codes


_RIDGE = 0.01


@dataclass
class Moments:
    """Sums over examples of an operator's inputs, in the float and in the quantized model.

    Attributes:
        count: rows summed over.
        mean: (n,) sum of the float model's inputs.
        mean_now: (n,) sum of the quantized model's inputs.
        second_now: (n, n) sum of products of the quantized model's inputs.
        cross: (n, n) sum of products of the float model's (rows) and the quantized one's (columns).
    """

    count: int
    mean: np.ndarray
    mean_now: np.ndarray
    second_now: np.ndarray
    cross: np.ndarray

    @classmethod
    def zeros(cls, inputs: int) -> Moments:
        """Return empty sums for this many inputs."""
        square = (inputs, inputs)
        return cls(0, np.zeros(inputs), np.zeros(inputs), np.zeros(square), np.zeros(square))

    def add(self, reference: np.ndarray, now: np.ndarray) -> None:
        """Add rows (rows, n) of the float and of the quantized model, in the same order."""
        self.count += len(reference)
        self.mean += reference.sum(axis=0, dtype=np.float64)
        self.mean_now += now.sum(axis=0, dtype=np.float64)
        # Around a mean that is large beside them, moments are what is left of large numbers.
        exact = now.astype(np.float64)
        self.second_now += exact.T @ exact
        self.cross += reference.astype(np.float64).T @ exact

    def covariance_now(self) -> np.ndarray:
        """Return the covariance of the quantized model's inputs, (n, n)."""
        mean = self.mean_now / self.count
        return self.second_now / self.count - np.outer(mean, mean)

    def cross_covariance(self) -> np.ndarray:
        """Return the covariance of the float model's inputs with the quantized one's, (n, n)."""
        means = np.outer(self.mean / self.count, self.mean_now / self.count)
        return self.cross / self.count - means


def absorbing_weights(weights: np.ndarray, moments: Moments) -> np.ndarray:
    """Return weights that, on the quantized model's inputs, best give the float model's outputs.

    The least squares of `weights @ x - result @ x_now` around the means, with a ridge towards
    `weights`: `result = (weights @ C + r weights)(S + r I)^-1`. Equal inputs leave the weights.

    Args:
        weights: (channels, n) of the float model.
        moments: of the n inputs.
    """
    spread = moments.covariance_now()
    ridge = _RIDGE * float(np.mean(np.diag(spread))) or 1.0
    right = weights @ moments.cross_covariance() + ridge * weights
    return np.linalg.solve(spread + ridge * np.eye(len(spread)), right.T).T


def corrected_bias(
    bias: np.ndarray, weights: np.ndarray, rounded: np.ndarray, moments: Moments
) -> np.ndarray:
    """Return the bias that keeps each output's mean (Nagel et al. 2019, section 4.2).

    Args:
        bias: (channels,) of the float model.
        weights: (channels, n) of the float model.
        rounded: (channels, n) of the quantized model.
        moments: of the n inputs.
    """
    return bias + (weights @ moments.mean - rounded @ moments.mean_now) / moments.count


Constants = dict[tuple[int, int], np.ndarray]
_WEIGHTS, _BIAS = 1, 2
# The moments of more inputs than these take gigabytes.
_MOST_INPUTS = 4096


def can_be_rounded(operator: Weighted) -> bool:
    """Whether an operator's weights are a matrix of a size that can be solved for."""
    return operator.kind in MATRIX_OPERATORS and operator.matrix.shape[1] <= _MOST_INPUTS


def rounded_model(content: bytes, bits: Mapping[str, int], batches: Batches) -> bytes:
    """Return a float model whose weights lie on the grids of their widths.

    Each operator is given weights that absorb the errors of those before it, is rounded one input
    at a time, then again as long as that helps, and gets the bias that keeps its mean. A quantizer
    that takes each channel's scale from its largest weight finds these grids again. Operators
    before the first of 4 bits stay as they are.

    Args:
        content: a float .tflite model.
        bits: width by the name of an operator's output tensor, where it is not 8.
        batches: unlabelled examples, read once per operator.
    """
    constants: Constants = {}
    current = content
    for operator in weighted_operators(content):
        width = bits.get(operator.name, 8)
        if (width == 8 and not constants) or not can_be_rounded(operator):
            continue
        moments = measure_moments(content, current, operator, batches)
        constants |= round_operator(operator, width, moments)
        current = with_constants(content, constants)
    return current


def round_operator(operator: Weighted, width: int, moments: Moments) -> Constants:
    """Return an operator's rounded weights and corrected bias, by operator and input position."""
    pruned = operator.matrix == 0  # zeros that an earlier stage promised to keep
    target = np.where(pruned, 0.0, absorbing_weights(operator.matrix, moments))
    spread, top = moments.covariance_now(), largest_code(width)
    scales = (
        min_max_scales(target, width)
        if width == 8
        else mse_scales(target, width, np.diag(spread) + 1e-12)
    )
    fixed = fixed_codes(target, scales, top, pruned)
    codes = gptq_codes(target, spread, scales, top, fixed)
    rounded = descend(target, codes, spread, scales, top, fixed) * scales[:, None]
    constants = {(operator.index, _WEIGHTS): rounded.reshape(operator.weights.shape)}
    if operator.bias is not None:
        bias = corrected_bias(operator.bias, operator.matrix, rounded, moments)
        constants[operator.index, _BIAS] = bias
    return constants


def measure_moments(
    content: bytes, current: bytes, operator: Weighted, batches: Batches
) -> Moments:
    """Return the moments of an operator's inputs in the float model and in the current one."""
    moments = Moments.zeros(operator.matrix.shape[1])
    reference, now = _tap(content, operator), _tap(current, operator)
    for number, arrays in enumerate(batches):
        rows = operator.rows(reference(arrays), np.random.default_rng(number))
        same = current is content
        rows_now = rows if same else operator.rows(now(arrays), np.random.default_rng(number))
        moments.add(rows, rows_now)
    if operator.bias is None:  # nothing takes up an error of the mean, so it counts as an error
        moments.mean[:] = moments.mean_now[:] = 0
    return moments


class _tap:
    """What flows into an operator, for a batch of the model's inputs by name."""

    def __init__(self, content: bytes, operator: Weighted) -> None:
        inputs = read(content)[0].inputs
        self._place = inputs.index(operator.input) if operator.input in inputs else None
        read_first = self._place is not None
        self._runner = load(content if read_first else exposing(content, [operator.input]))

    def __call__(self, arrays: Named) -> np.ndarray:
        if self._place is not None:
            return ordered(arrays, self._runner.input_names)[self._place]
        return self._runner.predict(arrays)[0]
