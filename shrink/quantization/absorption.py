"""Moments of an operator's inputs; weights and biases that make up for errors before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
