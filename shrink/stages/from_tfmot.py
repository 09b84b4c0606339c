"""Sparsity, clusters and ranges found in the weights of a tfmot model."""

from __future__ import annotations

import numpy as np

from shrink.contract.trained_range import ModelMetadata
from shrink.model.load import imported_from_tfmot
from shrink.pruning.masks import count_zeros, prunable_kernels
from shrink.pruning.sharing import MOST_VALUES, Few, as_shared
from shrink.tflite.lazy import keras

_PRUNED = 0.1
"""Share of exact zeros in kernels above which they were made: training leaves hardly any."""
_WEIGHTS_PER_VALUE = 4
"""Nonzero weights for each distinct value from which on a kernel was clustered, and is not just
small, or pruned to few weights."""
_MOST_OF_ROUNDED = 64
"""More distinct values than these are no clusters where a kernel is on the grid of 8 bits."""


def metadata_from_tfmot(model: keras.Model) -> tuple[ModelMetadata, list[str]]:
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
    if few := _clustered(model, _MOST_OF_ROUNDED if ranges else MOST_VALUES):
        traits.append("clusters")
        most = max(one.values for one in few)
        channels = sum(one.per_channel for one in few)
        apart = f", {channels} of them in each output channel" if channels else ""
        notes.append(
            f"came with the weights of {len(few)} kernels at no more than {most} values each"
            f"{apart}, which every stage keeps"
        )
    return ModelMetadata(ranges, tuple(traits)), notes


def _clustered(model: keras.Model, most: int) -> list[Few]:
    """Return how few values each kernel that was clustered takes."""
    found = []
    for one in prunable_kernels(model)[0]:
        kernel = one.kernel.numpy()
        shared = as_shared(kernel)
        if shared is None or shared.few.values > most:
            continue
        if np.count_nonzero(shared.values) * _WEIGHTS_PER_VALUE <= np.count_nonzero(kernel):
            found.append(shared.few)
    return found
