"""What a model of tfmot brings along, found in its weights."""

from __future__ import annotations

import numpy as np
import tf_keras as keras

from shrink.contract.trained_range import Brought
from shrink.model.load import imported_from_tfmot
from shrink.pruning.masks import count_zeros, prunable_kernels
from shrink.pruning.sharing import MOST_VALUES

_PRUNED = 0.1
"""Share of exact zeros in kernels above which they were made: training leaves hardly any."""
_WEIGHTS_PER_VALUE = 4
"""Weights for each distinct value from which on a kernel was clustered, and is not just small."""


def brought_from_tfmot(model: keras.Model) -> tuple[Brought, list[str]]:
    """Return what a model that was imported from tfmot brings along, and sentences that say so.

    What a file says of its wrappers does not tell: the schemes of collaborative optimization keep
    zeros and clusters, and write into a file what plain quantization-aware training does.

    Args:
        model: as `load_source` returned it.
    """
    imported = imported_from_tfmot(model)
    ranges = imported.ranges if imported is not None else ()
    traits, notes = [], []
    zeros = count_zeros(model)
    if zeros.fraction >= _PRUNED:
        traits.append("sparsity")
        notes.append(
            f"came with {zeros.fraction:.1%} of the weights in dense and convolutional kernels at "
            "zero, which every stage keeps"
        )
    if values := _clustered(model):
        traits.append("clusters")
        notes.append(
            f"came with the weights of {len(values)} kernels at no more than {max(values)} values "
            "each, which every stage keeps"
        )
    return Brought(ranges, tuple(traits)), notes


def _clustered(model: keras.Model) -> list[int]:
    """Return the number of distinct weights of each kernel that was clustered."""
    values = []
    for one in prunable_kernels(model)[0]:
        kernel = one.kernel.numpy()
        count = len(np.unique(kernel))
        if count <= min(MOST_VALUES, kernel.size // _WEIGHTS_PER_VALUE):
            values.append(count)
    return values
