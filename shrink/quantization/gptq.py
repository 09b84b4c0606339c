"""Rounding by second-order information: clipping, GPTQ and coordinate descent."""

from __future__ import annotations

import numpy as np

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


def gptq_round(
    weights: np.ndarray,
    hessian: np.ndarray,
    scales: np.ndarray,
    bits: int,
    pruned: np.ndarray | None = None,
) -> np.ndarray:
    """Return weights on the grid of each channel's scale, with little error in the outputs.

    Frantar et al. 2022, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
    Transformers", equations 2 and 3, in descending order of the inputs' second moments. The
    largest weight of each channel keeps the largest code, so that a quantizer that takes scales
    from the largest weight finds the same ones again.

    Args:
        weights: (channels, n).
        hessian: (n, n) second moments of the n inputs, around their mean where a bias takes up
            the mean error.
        scales: (channels,) at most the largest weight over the largest code.
        bits: of the symmetric integer type.
        pruned: bool (channels, n), weights that become 0 whatever they are.

    Returns:
        float64 (channels, n).
    """
    order = np.argsort(-np.diag(hessian), kind="stable")
    left = weights[:, order].astype(np.float64)
    factor = np.linalg.cholesky(np.linalg.inv(damped(hessian[np.ix_(order, order)]))).T
    kept = np.ones(left.shape, bool) if pruned is None else ~pruned[:, order]
    anchor = (np.abs(left) * kept).argmax(axis=1)
    signs = np.where(left[np.arange(len(left)), anchor] < 0, -1, 1)
    top = largest_code(bits)
    rounded = np.empty_like(left)
    for column in range(left.shape[1]):
        codes = np.clip(np.rint(left[:, column] / scales), -top, top)
        codes = np.where(anchor == column, signs * top, codes)
        rounded[:, column] = np.where(kept[:, column], codes * scales, 0.0)
        error = (left[:, column] - rounded[:, column]) / factor[column, column]
        left[:, column + 1 :] -= np.outer(error, factor[column, column + 1 :])
    result = np.empty_like(rounded)
    result[:, order] = rounded
    return result


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
    rounded: np.ndarray,
    hessian: np.ndarray,
    scales: np.ndarray,
    bits: int,
    pruned: np.ndarray,
) -> np.ndarray:
    """Return weights on the same grids, with an error no single other code would lower.

    Cyclic coordinate descent (Nair and Suggala 2024, "CDQuant: Greedy Coordinate Descent for
    Accurate LLM Quantization") on the error that `gptq_round` looks ahead for. One weight of each
    channel, the largest of those with the largest code, keeps it, so that a quantizer that takes
    scales from the largest weight finds the same ones again.

    Args:
        weights: (channels, n).
        rounded: (channels, n) on the grids, to begin with.
        hessian: (n, n) second moments of the n inputs.
        scales: (channels,).
        bits: of the symmetric integer type.
        pruned: bool (channels, n), weights that stay 0.

    Returns:
        float64 (channels, n), after 20 sweeps at the latest.
    """
    curvature = damped(hessian)
    codes = np.rint(rounded / scales[:, None])
    top = largest_code(bits)
    fixed = pruned.copy()
    anchor = np.where(np.abs(codes) == top, np.abs(weights), -1.0).argmax(axis=1)
    fixed[np.arange(len(fixed)), anchor] = True
    gradient = (codes * scales[:, None] - weights) @ curvature
    for _ in range(_SWEEPS):
        before = codes.copy()
        for column in np.argsort(-np.diag(curvature), kind="stable"):
            best = codes[:, column] - gradient[:, column] / curvature[column, column] / scales
            change = np.clip(np.rint(best), -top, top) - codes[:, column]
            moved = np.flatnonzero((change != 0) & ~fixed[:, column])
            codes[moved, column] += change[moved]
            gradient[moved] += np.outer(change[moved] * scales[moved], curvature[column])
        if np.array_equal(codes, before):
            break
    return codes * scales[:, None]
