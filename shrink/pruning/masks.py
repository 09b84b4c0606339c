"""Masks over kernels, chosen and applied once per optimizer update.

tfmot's wrapper counts forward passes and synchronises inside them, so that its schedule runs too
fast under gradient accumulation and fails under data parallelism; these masks do neither.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.pruning.matching import refuse_unmatched
from shrink.pruning.patterns import Pattern, unstructured
from shrink.pruning.schedule import SparsitySchedule, constant

_PRUNABLE = (
    keras.layers.Dense,
    keras.layers.Conv1D,
    keras.layers.Conv2D,
    keras.layers.Conv3D,
)
_NOT_PRUNABLE = (
    keras.layers.DepthwiseConv1D,
    keras.layers.DepthwiseConv2D,
)
_TRANSPOSED = (
    keras.layers.Conv1DTranspose,
    keras.layers.Conv2DTranspose,
    keras.layers.Conv3DTranspose,
)


@dataclass(frozen=True)
class PrunableKernel:
    """A layer's kernel that may be pruned."""

    layer: str
    kernel: tf.Variable


def prunable_kernels(
    model: keras.Model,
    exclude: Sequence[str] = (),
    multiple_of: int = 1,
    key: str = "prune.exclude",
) -> tuple[list[PrunableKernel], list[dict[str, str]]]:
    """Return the kernels of dense and convolutional layers, and the layers left alone with why.

    Args:
        model: nested models are walked too.
        exclude: shell patterns of layer names.
        multiple_of: of which the input channels of a kernel have to be a multiple.
        key: where `exclude` stands in a recipe, for errors.

    Raises:
        RecipeError: a pattern fits no layer with a kernel.
    """
    kernels: list[PrunableKernel] = []
    skipped: list[dict[str, str]] = []
    layers = list(model._flatten_layers(include_self=False, recursive=True))
    named = [layer.name for layer in layers if _reason_to_skip(layer, (), 1) != ""]
    refuse_unmatched(exclude, named, key)
    for layer in layers:
        reason = _reason_to_skip(layer, exclude, multiple_of)
        if reason is None:
            kernels.append(PrunableKernel(layer.name, layer.kernel))
        elif reason:
            skipped.append({"layer": layer.name, "reason": reason})
    return kernels, skipped


class Masks:
    """Keeps kernels masked through training; a hook for the engine's `after_update`.

    Create it inside the devices' scope.

    Args:
        kernels: the variables to mask.
        schedule: sparsity at an update.
        last_update: after this update the masks no longer change.
        frequency: updates between two choices of the masks.
        pattern: from a kernel and the sparsity to its mask.

    Attributes:
        settles_after: the update after which the masks are as sparse as they get.
    """

    def __init__(
        self,
        kernels: Sequence[tf.Variable],
        schedule: SparsitySchedule,
        last_update: int = 0,
        frequency: int = 1,
        pattern: Pattern = unstructured,
    ) -> None:
        self._pattern = pattern
        self._schedule = schedule
        self.settles_after = last_update
        self._frequency = frequency
        self._pairs = [
            (kernel, tf.Variable(tf.ones_like(kernel), trainable=False)) for kernel in kernels
        ]

    @property
    def variables(self) -> list[tf.Variable]:
        """The masks, part of a training run's state."""
        return [mask for _, mask in self._pairs]

    def prune_now(self, sparsity: float) -> None:
        """Choose and apply the masks at once."""
        for kernel, mask in self._pairs:
            chosen = self._pattern(kernel.read_value(), tf.constant(sparsity, tf.float64))
            mask.assign(chosen)
            kernel.assign(kernel.read_value() * chosen)

    def keep_zeros(self) -> None:
        """Take the zeros that are there as the masks."""
        for kernel, mask in self._pairs:
            mask.assign(tf.cast(kernel.read_value() != 0, kernel.dtype))

    def __call__(self, strategy: tf.distribute.Strategy, step: tf.Tensor) -> None:
        """Apply the masks after update number `step`, counted from 1, choosing them when due."""
        step = tf.cast(step, tf.int32)
        on_beat = tf.logical_or(step % self._frequency == 0, step == self.settles_after)
        due = tf.logical_and(step <= self.settles_after, on_beat)
        for kernel, mask in self._pairs:
            strategy.extended.update(kernel, self._masked, args=(mask, due, step))

    def _masked(
        self, kernel: tf.Variable, mask: tf.Variable, due: tf.Tensor, step: tf.Tensor
    ) -> None:
        weights = kernel.read_value()
        chosen = tf.cond(
            due,
            lambda: self._pattern(weights, self._schedule(step)),
            mask.read_value,
        )
        mask.assign(chosen)
        kernel.assign(weights * chosen)


def frozen_masks(model: keras.Model) -> Masks:
    """Return masks that keep every zero of the model's prunable kernels where it is."""
    kernels, _ = prunable_kernels(model)
    masks = Masks([k.kernel for k in kernels], constant(0.0))
    masks.keep_zeros()
    return masks


@dataclass(frozen=True)
class Zeros:
    """How many of the weights in prunable kernels are zero."""

    count: int
    of: int

    @property
    def fraction(self) -> float:
        """The sparsity, 0 where there is no kernel."""
        return self.count / self.of if self.of else 0.0


def count_zeros(model: keras.Model) -> Zeros:
    """Return how many of the weights in a model's prunable kernels are zero."""
    kernels = [k.kernel.numpy() for k in prunable_kernels(model)[0]]
    return Zeros(sum(int(np.sum(k == 0)) for k in kernels), sum(k.size for k in kernels))


def _reason_to_skip(
    layer: keras.layers.Layer, exclude: Sequence[str], multiple_of: int
) -> str | None:
    """Return None for a prunable layer, "" for one without kernel, else why it is left alone."""
    if isinstance(layer, _NOT_PRUNABLE):
        return "a depthwise kernel has too few weights per channel"
    if not isinstance(layer, _PRUNABLE):
        has_kernel = getattr(layer, "kernel", None) is not None
        return f"{type(layer).__name__} kernels are left as they are" if has_kernel else ""
    if any(fnmatch.fnmatchcase(layer.name, pattern) for pattern in exclude):
        return "excluded by the recipe"
    if multiple_of > 1 and isinstance(layer, _TRANSPOSED):
        return "transposed kernels have no groups of input channels side by side"
    if (channels := layer.kernel.shape[-2]) % multiple_of:
        return f"its {channels} input channels are no multiple of {multiple_of}"
    return None
