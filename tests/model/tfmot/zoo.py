"""Models that tensorflow-model-optimization made, by its own calls alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow_model_optimization as tfmot
import tf_keras as keras
from tensorflow_model_optimization.python.core.clustering.keras.experimental import (
    cluster as sparse,
)

L = keras.layers
CLUSTERS = 8


def small() -> keras.Model:
    """Return a convolutional network with all that tfmot treats in a way of its own."""
    x = inputs = keras.Input((8, 8, 2), name="picture")
    x = L.Conv2D(8, 3, padding="same", use_bias=False, name="conv")(x)
    x = L.ReLU(name="relu")(L.BatchNormalization(name="norm")(x))
    y = L.DepthwiseConv2D(3, padding="same", name="depthwise")(x)
    x = L.Activation("relu", name="sum_relu")(L.Add(name="sum")([x, y]))
    x = L.Conv2D(8, 3, strides=2, activation="relu", name="second")(x)
    x = L.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(inputs, L.Dense(4, activation="softmax", name="scores")(x), name="small")


def examples(model: keras.Model, count: int = 32) -> np.ndarray:
    """Return random inputs, (count, ...) in [0, 1)."""
    shape = (count, *model.input_shape[1:])
    return np.random.default_rng(1).random(shape).astype(np.float32)


Fit = Callable[[keras.Model, list[keras.callbacks.Callback]], keras.Model]


def fitted(model: keras.Model, callbacks: list[keras.callbacks.Callback]) -> keras.Model:
    """Train a few updates on random labels, which is enough to move everything."""
    x = examples(model)
    labels = np.random.default_rng(2).integers(0, model.output_shape[-1], len(x))
    model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy")
    model.fit(x, labels, batch_size=16, epochs=1, verbose=0, callbacks=callbacks)
    return model


def pruned(model: keras.Model, fit: Fit = fitted, updates: int = 1) -> keras.Model:
    """Return half of the weights pruned, with wrappers."""
    schedule = tfmot.sparsity.keras.PolynomialDecay(0.0, 0.5, 0, updates, frequency=1)
    wrapped = tfmot.sparsity.keras.prune_low_magnitude(model, pruning_schedule=schedule)
    return fit(wrapped, [tfmot.sparsity.keras.UpdatePruningStep()])


def clustered(model: keras.Model, fit: Fit = fitted, keep_zeros: bool = False) -> keras.Model:
    """Return the weights of each layer in few clusters, with wrappers."""
    start = tfmot.clustering.keras.CentroidInitialization.KMEANS_PLUS_PLUS
    if keep_zeros:
        return fit(sparse.cluster_weights(model, CLUSTERS, start, preserve_sparsity=True), [])
    return fit(tfmot.clustering.keras.cluster_weights(model, CLUSTERS, start), [])


def wide() -> keras.Model:
    """Return a network with a convolution of so many channels that each has few values alone."""
    x = inputs = keras.Input((6, 6, 8), name="picture")
    x = L.Conv2D(44, 3, activation="relu", name="conv")(x)
    x = L.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(inputs, L.Dense(4, activation="softmax", name="scores")(x), name="wide")


def clustered_per_channel(
    model: keras.Model, fit: Fit = fitted, keep_zeros: bool = False
) -> keras.Model:
    """Return the weights of each channel of each convolution in few clusters, with wrappers."""
    start = tfmot.clustering.keras.CentroidInitialization.KMEANS_PLUS_PLUS
    return fit(sparse.cluster_weights(model, CLUSTERS, start, keep_zeros, True), [])


def quantized(model: keras.Model, fit: Fit = fitted, scheme: object = None) -> keras.Model:
    """Return the model quantization-aware."""
    annotated = tfmot.quantization.keras.quantize_annotate_model(model)
    arguments = () if scheme is None else (scheme,)
    return fit(tfmot.quantization.keras.quantize_apply(annotated, *arguments), [])


def annotated(model: keras.Model, fit: Fit = fitted) -> keras.Model:
    """Return the model annotated and not quantized yet."""
    return tfmot.quantization.keras.quantize_annotate_model(model)


def pqat(model: keras.Model, fit: Fit = fitted) -> keras.Model:
    """Return a pruned model quantization-aware, its zeros kept."""
    stripped = tfmot.sparsity.keras.strip_pruning(pruned(model, fit))
    scheme = tfmot.experimental.combine.Default8BitPrunePreserveQuantizeScheme()
    return quantized(stripped, fit, scheme)


def cqat(model: keras.Model, fit: Fit = fitted) -> keras.Model:
    """Return a clustered model quantization-aware, its clusters kept."""
    stripped = tfmot.clustering.keras.strip_clustering(clustered(model, fit))
    scheme = tfmot.experimental.combine.Default8BitClusterPreserveQuantizeScheme()
    return quantized(stripped, fit, scheme)


def pcqat(model: keras.Model, fit: Fit = fitted) -> keras.Model:
    """Return a pruned and clustered model quantization-aware, with both kept."""
    stripped = tfmot.sparsity.keras.strip_pruning(pruned(model, fit))
    stripped = tfmot.clustering.keras.strip_clustering(clustered(stripped, fit, keep_zeros=True))
    scheme = tfmot.experimental.combine.Default8BitClusterPreserveQuantizeScheme(True)
    return quantized(stripped, fit, scheme)


MADE: dict[str, Callable[..., keras.Model]] = {
    "pruned": pruned,
    "clustered": clustered,
    "annotated": annotated,
    "qat": quantized,
    "pqat": pqat,
    "cqat": cqat,
    "pcqat": pcqat,
}
"""How each kind is made."""
ENDINGS = {"keras": ".keras", "h5": ".h5", "savedmodel": ""}


def saved(model: keras.Model, folder: Path, ending: str) -> Path:
    """Save a model and return its path."""
    path = folder / f"model{ending}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would have another format
        model.save(path)
    return path
