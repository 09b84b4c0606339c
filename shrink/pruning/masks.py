"""Masks of magnitude pruning: their pattern, their schedule and the weights they hold.

Groups of four run along a kernel's input channels, the dimension that a product sums over: so do
the 2:4 units of GPUs (Mishra et al. 2021, "Accelerating Sparse Deep Neural Networks") and the 1x4
blocks of TFLite's sparse kernels.

tfmot's wrapper counts forward passes and synchronises inside them, so that its schedule runs too
fast under gradient accumulation and fails under data parallelism; these masks do neither.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.errors import RecipeError, hint_for
from shrink.base.keras_internals import freeze_alone, layers_of, own_weights
from shrink.contract.report import Skipped
from shrink.graph.network import is_batch_norm

SparsitySchedule = Callable[[tf.Tensor], tf.Tensor]
"""From the number of an update to the sparsity, float64: how many weights that is must be exact."""


def constant(sparsity: float) -> SparsitySchedule:
    """Return a schedule that is at `sparsity` from the start."""
    return lambda step: tf.fill(tf.shape(step), tf.constant(sparsity, tf.float64))


def polynomial(sparsity: float, last_update: int, initial: float = 0.0) -> SparsitySchedule:
    """Return the cubic ramp s(t) = s_f + (s_i - s_f) · (1 - t / last)³, constant afterwards.

    Equation 1 of Zhu & Gupta (2017), "To prune, or not to prune", with t_0 = 0.

    Args:
        sparsity: s_f, at which it ends.
        last_update: the number of the update at which it gets there.
        initial: s_i, at which it begins.
    """

    def at(step: tf.Tensor) -> tf.Tensor:
        progress = tf.minimum(tf.cast(step, tf.float64) / last_update, 1.0)
        return sparsity + (initial - sparsity) * (1.0 - progress) ** 3

    return at


def ramp_updates(ramp: float, total_updates: int) -> int:
    """Return the number of the update at which a ramp over `ramp` of all updates ends, ≥ 1."""
    return max(1, math.ceil(ramp * total_updates))


_CHOICES, _SELDOM = 48, 10


def updates_between_choices(last_update: int) -> int:
    """Return how many updates to leave between two choices of masks on a ramp of this length.

    Few choices prune much at once: 80 % in 48 updates begins with 41 % in the tenth.
    """
    return min(_SELDOM, max(1, last_update // _CHOICES))


def refuse_unmatched(patterns: Iterable[str], names: Sequence[str], key: str) -> None:
    """Raise `RecipeError` for a shell pattern that fits none of the layers that it could.

    Args:
        patterns: of the recipe.
        names: of the layers that the key is about.
        key: where the patterns stand, such as `prune.exclude`.
    """
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise RecipeError(
                f"{pattern!r} fits no layer that could be meant",
                subject=key,
                hint=hint_for(pattern, names) or "leave it out",
            )


GROUP = 4
"""Weights of one group."""

Pattern = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""A kernel (..., in, out) and the sparsity, a scalar in [0, 1), to a mask of 0 and 1 like it."""


def unstructured(weights: tf.Tensor, sparsity: tf.Tensor) -> tf.Tensor:
    """Return 0 for the `round(sparsity * size)` weights of smallest magnitude, 1 for the others.

    The weights may have any shape that is known. Exactly so many are 0: of equal ones some that are
    spread over the kernel, the same at every call.
    """
    size = math.prod(weights.shape)
    # In float64, as float32 cannot count the weights of a large kernel.
    pruned = tf.cast(tf.round(tf.cast(sparsity, tf.float64) * size), tf.int32)
    spread = tf.random.experimental.stateless_shuffle(tf.range(size), seed=(0, 0))
    magnitudes = tf.gather(tf.reshape(tf.abs(weights), [-1]), spread)
    kept = tf.gather(spread, tf.argsort(magnitudes, stable=True))[pruned:]
    ones = tf.ones([size - pruned], weights.dtype)
    return tf.reshape(tf.scatter_nd(kept[:, tf.newaxis], ones, [size]), weights.shape)


def two_of_four(weights: tf.Tensor, sparsity: tf.Tensor) -> tf.Tensor:
    """Return 0 for the two smallest of each group, the first of equals; the sparsity is 0.5."""
    groups = tf.abs(_groups(weights))
    rank = tf.argsort(tf.argsort(groups, stable=True), stable=True)
    return _ungroup(tf.cast(rank >= GROUP // 2, weights.dtype), weights)


def block(weights: tf.Tensor, sparsity: tf.Tensor) -> tf.Tensor:
    """Return 0 for the `round(sparsity * groups)` groups of smallest L1 norm."""
    groups = _groups(weights)
    *spatial, inputs, outputs = weights.shape
    norms = tf.reshape(tf.reduce_sum(tf.abs(groups), -1), [*spatial, outputs, inputs // GROUP])
    kept = tf.reshape(unstructured(norms, sparsity), [-1, 1])
    return _ungroup(kept * tf.ones_like(groups), weights)


PATTERNS: Mapping[str, Pattern] = {
    "unstructured": unstructured,
    "2:4": two_of_four,
    "block": block,
}
"""Every pattern, by its name in a recipe."""


def pruned_count(kernel: np.ndarray, pattern: str) -> tuple[int, int]:
    """Return how many units of a pattern are zero in a kernel, and how many there are.

    A unit is a weight, or a group of four: wholly zero for `block`, for `2:4` with two zeros.

    Args:
        kernel: (..., in, out).
    """
    if pattern == "unstructured":
        return int(np.sum(kernel == 0)), kernel.size
    zeros = np.sum(np.swapaxes(kernel, -1, -2).reshape(-1, GROUP) == 0, axis=1)
    needed = GROUP if pattern == "block" else GROUP // 2
    return int(np.sum(zeros >= needed)), len(zeros)


def _groups(weights: tf.Tensor) -> tf.Tensor:
    """Return (groups, 4); the groups of an output follow each other."""
    return tf.reshape(tf.linalg.matrix_transpose(weights), [-1, GROUP])


def _ungroup(groups: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    turned = tf.shape(tf.linalg.matrix_transpose(like))
    return tf.linalg.matrix_transpose(tf.reshape(groups, turned))


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
) -> tuple[list[PrunableKernel], list[Skipped]]:
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
    skipped: list[Skipped] = []
    layers = layers_of(model)
    named = [layer.name for layer in layers if _reason_to_skip(layer, (), 1) != ""]
    refuse_unmatched(exclude, named, key)
    for layer in layers:
        reason = _reason_to_skip(layer, exclude, multiple_of)
        if reason is None:
            kernels.append(PrunableKernel(layer.name, layer.kernel))
        elif reason:
            skipped.append(Skipped(layer=layer.name, reason=reason))
    return kernels, skipped


def unfreeze(model: keras.Model, kernels: Sequence[PrunableKernel]) -> list[str]:
    """Make the layers of these kernels trainable, also within frozen models; return their names.

    All other layers stay as they are: a frozen batch normalization keeps its statistics.
    """
    learned = {id(weight) for weight in model.trainable_weights}
    wanted = {id(one.kernel): one.layer for one in kernels if id(one.kernel) not in learned}
    if not wanted:
        return []
    frozen = [
        layer
        for layer in layers_of(model)
        if (own_weights(layer) or (is_batch_norm(layer) and not layer.trainable))
        and not any(id(weight) in learned for weight in own_weights(layer))
        and id(getattr(layer, "kernel", None)) not in wanted
    ]
    model.trainable = True
    for layer in frozen:
        freeze_alone(layer)
    return list(wanted.values())


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


class FrozenMasks:
    """Multiplies variables with fixed masks after every update; a hook for the engine.

    Create it inside the devices' scope.

    Args:
        pairs: variables, each with its mask of 0 and 1 of the same shape.
    """

    def __init__(self, pairs: Sequence[tuple[tf.Variable, np.ndarray]]) -> None:
        self._pairs = [
            (variable, tf.Variable(tf.cast(mask, variable.dtype), trainable=False))
            for variable, mask in pairs
        ]

    def __call__(self, strategy: tf.distribute.Strategy, step: tf.Tensor) -> None:
        """Apply the masks, whatever the step."""
        for variable, mask in self._pairs:
            strategy.extended.update(variable, _apply, args=(mask,))


def _apply(variable: tf.Variable, mask: tf.Variable) -> None:
    variable.assign(variable.read_value() * mask.read_value())
