"""Per-channel weight scales that clip where that lowers the squared rounding error."""

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
