"""Kernels whose weights share a few values, found once and kept through every update.

tfmot's wrapper looks the centroids up in the forward pass of its own layers, which fails under
gradient accumulation over replicas and has to be stripped; these kernels stay plain variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.pruning.masks import prunable_kernels

MOST_VALUES = 256
"""More distinct values than these are no clusters: 8 bits index no more."""
_STARTS = 4


@dataclass(frozen=True)
class Shared:
    """A kernel's values and which weight takes which.

    Attributes:
        values: float32 (clusters,).
        assignment: uint8, of the kernel's shape, indices into `values`.
    """

    values: np.ndarray
    assignment: np.ndarray

    @property
    def kernel(self) -> np.ndarray:
        """The kernel of shared values, float32."""
        return self.values[self.assignment]


def cluster(kernel: np.ndarray, clusters: int, seed: int, keep_zeros: bool) -> Shared:
    """Return the kernel's weights in clusters of least squared distance (k-means).

    Args:
        kernel: float, any shape.
        clusters: distinct values to end with, fewer where the kernel has fewer.
        seed: of the starting centroids (k-means++, the best of four).
        keep_zeros: zeros stay exactly zero, a cluster of their own.
    """
    from sklearn.cluster import KMeans

    already = as_shared(np.asarray(kernel, np.float32))
    if already is not None and len(already.values) <= clusters:
        return already  # k-means would move values by rounding, and join two that are near
    weights = np.asarray(kernel, np.float32).ravel()
    free = weights != 0 if keep_zeros else np.ones(weights.shape, bool)
    zero = int(not free.all())
    assignment = np.zeros(weights.shape, np.uint8)
    values = np.zeros(zero, np.float32)
    count = min(clusters - zero, len(np.unique(weights[free])))
    if count:
        means = KMeans(count, n_init=_STARTS, random_state=seed)
        assignment[free] = means.fit_predict(weights[free, None]) + zero
        values = np.append(values, means.cluster_centers_[:, 0]).astype(np.float32)
    return Shared(values, assignment.reshape(np.shape(kernel)))


def as_shared(kernel: np.ndarray) -> Shared | None:
    """Return the few values that a kernel has already, or None where they are not few."""
    values, assignment = np.unique(kernel, return_inverse=True)
    if len(values) > MOST_VALUES:
        return None
    return Shared(values, assignment.reshape(np.shape(kernel)).astype(np.uint8))


class SharedKernels:
    """Gives every weight of a cluster their mean after each update; a hook for the engine.

    The mean of what an optimizer did to a cluster's weights is a step of its centroid along their
    mean gradient (Han, Mao & Dally 2016, "Deep Compression", sec. 3.3, where it is their sum).
    Create it inside the devices' scope.

    Args:
        pairs: kernels, each with how its weights share values.
    """

    def __init__(self, pairs: Sequence[tuple[tf.Variable, Shared]]) -> None:
        self._kernels = [
            (
                kernel,
                tf.Variable(shared.assignment.ravel(), trainable=False),
                len(shared.values),
            )
            for kernel, shared in pairs
        ]

    def __call__(self, strategy: tf.distribute.Strategy, step: tf.Tensor) -> None:
        """Share the values, whatever the step."""
        for kernel, assignment, count in self._kernels:
            strategy.extended.update(kernel, _share, args=(assignment, count))


def keep_shared(model: keras.Model) -> SharedKernels:
    """Return what keeps the clusters of a model's kernels where they are."""
    pairs = [(k.kernel, as_shared(k.kernel.numpy())) for k in prunable_kernels(model)[0]]
    return SharedKernels([(kernel, shared) for kernel, shared in pairs if shared is not None])


def _share(kernel: tf.Variable, assignment: tf.Variable, count: int) -> None:
    index = tf.cast(assignment.read_value(), tf.int32)
    weights = tf.reshape(kernel.read_value(), [-1])
    means = tf.math.unsorted_segment_mean(weights, index, count)
    kernel.assign(tf.reshape(tf.gather(means, index), kernel.shape))
