"""Codes changed one at a time while that lowers the error of the outputs."""

from __future__ import annotations

import numpy as np

from shrink.quantization.clipping import largest_code
from shrink.quantization.gptq import damped

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
