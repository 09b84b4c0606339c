"""Inputs for an artifact where there are no examples."""

from __future__ import annotations

import numpy as np

from shrink.tflite.interpreter import load
from shrink.tflite.names import Named
from shrink.tflite.session import TensorDetail

_COUNT = 16


def random_inputs(content: bytes) -> Named:
    """Return seeded random numbers, float32 (16, ...), by the names of an artifact's inputs.

    Real inputs lie in [0, 1); integers, which may be indices, are 0 or 1.

    Args:
        content: the .tflite file.
    """
    rng = np.random.default_rng(0)

    def one(detail: TensorDetail) -> np.ndarray:
        shape = (_COUNT, *detail.shape[1:])
        drawn = rng.random(shape) if detail.dtype.kind == "f" else rng.integers(0, 2, shape)
        return drawn.astype(np.float32)

    return {detail.name: one(detail) for detail in load(content).input_details}
