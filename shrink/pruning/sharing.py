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
_WEIGHTS_PER_VALUE = 2
"""Nonzero weights for each distinct value from which on a channel's weights share values:
training gives hardly two weights the same float."""
_STARTS = 4
_TELLING = 1 << 14
"""Weights that tell whether a kernel has more values: to sort all of a large one takes seconds."""


@dataclass(frozen=True)
class Few:
    """How few values the weights of a kernel take.

    Attributes:
        values: distinct values of the whole kernel, or the most of any output channel.
        per_channel: whether it is of each output channel, as the whole kernel takes too many.
    """

    values: int
    per_channel: bool = False


@dataclass(frozen=True)
class Shared:
    """A kernel's values and which weight takes which.

    Attributes:
        values: float32 (clusters,), those of one output channel after the other if `few` says so.
        assignment: integers of the kernel's shape, indices into `values`.
        few: how many values there are.
    """

    values: np.ndarray
    assignment: np.ndarray
    few: Few

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
    if already is not None and not already.few.per_channel and already.few.values <= clusters:
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
    return Shared(values, assignment.reshape(np.shape(kernel)), Few(len(values)))


def as_shared(kernel: np.ndarray) -> Shared | None:
    """Return the few values that a kernel has already, or None where they are not few.

    Args:
        kernel: (..., out). Few are at most 256 distinct values in all, or in each output channel,
            as tfmot's `cluster_per_channel` leaves them, if the channel's weights do share them.
    """
    if len(np.unique(np.ravel(kernel)[:_TELLING])) > MOST_VALUES:
        return _shared_per_channel(kernel)
    values, assignment = np.unique(kernel, return_inverse=True)
    if len(values) <= MOST_VALUES:
        assignment = assignment.reshape(np.shape(kernel)).astype(np.uint8)
        return Shared(values, assignment, Few(len(values)))
    return _shared_per_channel(kernel)


def few_values(kernel: np.ndarray) -> Few | None:
    """Return how few values a kernel (..., out) takes, or None where they are not few."""
    shared = as_shared(kernel)
    return None if shared is None else shared.few


def _shared_per_channel(kernel: np.ndarray) -> Shared | None:
    values: list[np.ndarray] = []
    assignment = np.empty(kernel.shape, np.int32)
    most = start = distinct = 0
    for channel in range(kernel.shape[-1]):
        own, index = np.unique(kernel[..., channel], return_inverse=True)
        if len(own) > MOST_VALUES:
            return None
        assignment[..., channel] = index.reshape(kernel.shape[:-1]) + start
        values.append(own)
        start += len(own)
        distinct += int(np.count_nonzero(own))
        most = max(most, len(own))
    if distinct * _WEIGHTS_PER_VALUE > np.count_nonzero(kernel):
        return None
    return Shared(np.concatenate(values), assignment, Few(most, per_channel=True))


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
