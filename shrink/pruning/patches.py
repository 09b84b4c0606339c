"""The rows of numbers that a layer's kernel is multiplied with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
import tf_keras as keras

_CHUNK_BYTES = 64 * 1000**2


def can_unfold(layer: keras.layers.Layer) -> bool:
    """Whether the layer is a matrix product over patches of its input."""
    if type(layer) is keras.layers.Dense:
        return True
    if type(layer) is keras.layers.Conv1D:
        return layer.groups == 1 and layer.padding in ("valid", "same")
    return type(layer) is keras.layers.Conv2D and layer.groups == 1


def unfold(layer: keras.layers.Layer, x: np.ndarray, rows: int, seed: int) -> Iterator[np.ndarray]:
    """Yield (m, taps · channels) float32: patches of the layer's input, taps before channels.

    Row times `kernel.reshape(-1, outputs)` is the layer's output at that place, without bias.

    Args:
        layer: one that `can_unfold`.
        x: its input, (n, ..., channels).
        rows: the most patches per example, chosen by the seed.
    """
    random = np.random.default_rng(seed)
    per_example = x[0].nbytes * int(np.prod(layer.kernel.shape[:-2], dtype=np.int64))
    step = max(1, _CHUNK_BYTES // max(per_example, 1))
    chosen: np.ndarray | None = None
    for start in range(0, len(x), step):
        patches = _patches(layer, x[start : start + step])
        if chosen is None:
            count = patches.shape[1]
            chosen = random.choice(count, min(rows, count), replace=False)
        yield patches[:, chosen].reshape(-1, patches.shape[-1])


def _patches(layer: keras.layers.Layer, x: np.ndarray) -> np.ndarray:
    """Return (n, places, taps · channels)."""
    if isinstance(layer, keras.layers.Dense):
        return x.reshape(len(x), -1, x.shape[-1])
    if isinstance(layer, keras.layers.Conv1D):
        x = x[:, None]
    flat = [1] if x.ndim == 4 and len(layer.kernel_size) == 1 else []
    patches = tf.image.extract_patches(
        x,
        sizes=[1, *flat, *layer.kernel_size, 1],
        strides=[1, *flat, *layer.strides, 1],
        rates=[1, *flat, *layer.dilation_rate, 1],
        padding=layer.padding.upper(),
    ).numpy()
    return patches.reshape(len(x), -1, patches.shape[-1])
