"""Scales and rounding of weights before conversion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shrink.quantization.calibration import Batches
from shrink.quantization.gptq import descend, gptq_round, min_max_scales, mse_scales
from shrink.quantization.operators import MATRIX_OPERATORS, Weighted, weighted_operators
from shrink.tflite.edit import exposing, with_constants
from shrink.tflite.interpreter import load
from shrink.tflite.names import Named, ordered
from shrink.tflite.structure import read

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
    """Return an operator's rounded weights and corrected bias, by operator and input place."""
    pruned = operator.matrix == 0  # zeros that an earlier stage promised to keep
    target = np.where(pruned, 0.0, absorbing_weights(operator.matrix, moments))
    spread = moments.covariance_now()
    scales = (
        min_max_scales(target, width)
        if width == 8
        else mse_scales(target, width, np.diag(spread) + 1e-12)
    )
    rounded = gptq_round(target, spread, scales, width, pruned)
    rounded = descend(target, rounded, spread, scales, width, pruned)
    found = {(operator.index, _WEIGHTS): rounded.reshape(operator.weights.shape)}
    if operator.bias is not None:
        bias = corrected_bias(operator.bias, operator.matrix, rounded, moments)
        found[operator.index, _BIAS] = bias
    return found


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
