"""Rounding of weights one input at a time, each error made up for by the inputs still to come."""

from __future__ import annotations

import numpy as np

from shrink.quantization.clipping import largest_code

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
