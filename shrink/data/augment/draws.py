"""Random numbers that (seed, epoch, example) alone decide, however examples are batched."""

from __future__ import annotations

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seed: int, epoch: int, examples: np.ndarray, count: int) -> np.ndarray:
    """Return `count` numbers for each example, float32 (n, count), uniform in [0, 1).

    SplitMix64 (Steele, Lea & Flood 2014) as a hash of the counter (seed, epoch, example, place).

    Args:
        seed: of the training.
        epoch: from 0.
        examples: int64 (n,), places in the training split.
        count: numbers for each.
    """
    key = _mix(_mix(np.array([seed], np.uint64)) + np.array([epoch], np.uint64))
    stream = _mix(key + _mix(np.asarray(examples).astype(np.uint64)))
    places = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    bits = _mix(stream[:, None] + places)
    return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def _mix(z: np.ndarray) -> np.ndarray:
    z = z + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
