"""What layers do to the channels that pass them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.graph.channels import Channels, ChannelSets, Labels
from shrink.graph.network import Call, Ref

Role = Literal["output", "input", "channel", "scale"]
"""output, input: of a kernel; scale: a batch norm's gamma; channel: any other value per channel."""


@dataclass(frozen=True)
class WeightAxis:
    """An axis of a weight whose positions belong to channels."""

    axis: int
    labels: Labels
    role: Role


@dataclass(frozen=True)
class WeightUse:
    """A weight of a layer, by its index in `layer.weights`.

    Attributes:
        positions: how often each of its elements is multiplied for one example.
    """

    index: int
    axes: tuple[WeightAxis, ...]
    positions: int = 0


@dataclass(frozen=True)
class Edit:
    """An entry of the layer's configuration that counts channels.

    Attributes:
        item: the index, where the entry is a list.
        within: keys of the mappings around the entry, of a wrapped layer's configuration.
    """

    key: str
    labels: Labels
    item: int | None = None
    within: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effect:
    """What a call makes of its inputs' channels.

    Attributes:
        outputs: the channels of each output.
        weights: every weight that has an axis of channels, or is multiplied with.
        edits: what the configuration says of channels.
        produces: the labels that the layer itself made; empty for a layer that passes them on.
    """

    outputs: tuple[Channels, ...]
    weights: tuple[WeightUse, ...] = ()
    edits: tuple[Edit, ...] = ()
    produces: Labels | None = None


@dataclass(frozen=True)
class Site:
    """One call with the channels of its inputs: what a rule is given.

    Attributes:
        produced: the labels that this layer made at an earlier call, None at the first.
    """

    call: Call
    inputs: tuple[Channels, ...]
    sets: ChannelSets
    name: str
    produced: Labels | None = None

    @property
    def layer(self) -> keras.layers.Layer:
        """The layer that is called."""
        return self.call.layer

    @property
    def output(self) -> Ref:
        """The only output."""
        return self.call.outputs[0]

    def produce(self, count: int) -> Labels:
        """Return the labels of the layer's own channels; the same ones at every call."""
        return self.sets.new(count) if self.produced is None else self.produced

    def protect(self, reason: str) -> Effect:
        """Keep every channel that comes in, and give outputs whose channels all stay."""
        for channels in self.inputs:
            self.sets.protect(channels.labels, reason)
        return Effect(tuple(self._fixed(ref, reason) for ref in self.call.outputs))

    def on_last_axis(self) -> Site:
        """Return the site with inputs whose labels are on the last axis, fixed where they are not.

        A layer that works on another axis than the channels takes a number from every channel.
        """
        reason = f"{self.name}: works along another axis than its input's channels"
        inputs = []
        for ref, channels in zip(self.call.inputs, self.inputs, strict=True):
            if not channels.is_last:
                self.sets.protect(channels.labels, reason)
            inputs.append(channels if channels.is_last else self._fixed(ref, reason))
        return replace(self, inputs=tuple(inputs))

    def passes(self, labels: Labels, axis: int | None = None) -> tuple[Channels, ...]:
        """Return the only output with these labels on an axis, by default the last."""
        shape = self.output.shape
        return (Channels(shape, len(shape) - 1 if axis is None else axis, labels),)

    def _fixed(self, ref: Ref, reason: str) -> Channels:
        length = ref.shape[-1] if len(ref.shape) > 1 else 0
        labels = self.sets.new(length or 0)
        self.sets.protect(labels, reason)
        return Channels(ref.shape, len(ref.shape) - 1, labels)


def weight_index(layer: keras.layers.Layer, weight: tf.Variable) -> int:
    """Return the index of a variable in `layer.weights`."""
    return next(i for i, each in enumerate(layer.weights) if each is weight)


def positions(ref: Ref | Channels, skip_last: bool = True) -> int:
    """Return the number of positions of one example, but for its last axis; unknown sides as 1."""
    sides = ref.shape[1:-1] if skip_last else ref.shape[1:]
    return math.prod(side or 1 for side in sides)


_ELEMENTWISE = {
    "linear", "relu", "elu", "selu", "gelu", "swish", "sigmoid", "tanh", "softplus", "softsign",
    "exponential", "hard_sigmoid", "mish",
}  # fmt: skip


def is_elementwise(activation: object) -> bool:
    """Whether an activation looks at each number alone; a softmax does not."""
    if activation is None:
        return True
    known = [keras.activations.get(name) for name in sorted(_ELEMENTWISE)]
    known += [tf.nn.relu, tf.nn.relu6, tf.nn.silu, tf.nn.elu, tf.nn.selu, tf.nn.gelu]
    known += [tf.nn.sigmoid, tf.nn.tanh, tf.nn.leaky_relu, tf.nn.softplus]
    return any(activation is each for each in known)


def reshaped(
    channels: Channels, shape: tuple[int | None, ...], sets: ChannelSets
) -> Channels | None:
    """Return the channels after a row-major reshape to `shape`, None where they are lost.

    Elements that come to stand at one position of the new channel axis are united. Removing whole
    sets then leaves a regular grid in both shapes, with the remaining elements in the same order.
    """
    before, after = _sides(channels.shape), _sides(shape)
    if before is None or after is None:
        same = channels.is_last and shape[-1] == len(channels.labels)
        return Channels(shape, len(shape) - 1, channels.labels) if same else None
    if not after:
        return None
    along = [1] * len(before)
    along[channels.axis - 1] = -1
    full = np.broadcast_to(channels.labels.reshape(along), before)
    grid = sets.roots(full).reshape(after)
    for axis in reversed(range(grid.ndim)):
        rows = np.moveaxis(grid, axis, -1).reshape(-1, grid.shape[axis])
        if np.array_equal(rows, np.broadcast_to(rows[0], rows.shape)):
            return Channels(shape, axis + 1, rows[0])
    rows = grid.reshape(-1, grid.shape[-1])
    for row in rows[1:]:
        sets.unite(rows[0], row)
    return Channels(shape, len(shape) - 1, rows[0])


def _sides(shape: tuple[int | None, ...]) -> list[int] | None:
    """Return the shape without the batch, None where a side is unknown."""
    known = [side for side in shape[1:] if side is not None]
    return known if len(known) == len(shape) - 1 else None


def concatenate(site: Site, axis: int) -> Effect:
    """Join the channels along their axis; unite them where the tensors are joined along another."""
    first = site.inputs[0]
    if any(channels.axis != first.axis for channels in site.inputs):
        return site.protect(f"{site.name}: its inputs have their channels on different axes")
    if axis == first.axis:
        return Effect(site.passes(np.concatenate([c.labels for c in site.inputs]), axis))
    for channels in site.inputs[1:]:
        site.sets.unite(first.labels, channels.labels)
    return Effect(site.passes(first.labels, first.axis))


def merge(site: Site) -> Effect:
    """Unite the channels of tensors that are added, multiplied or compared element by element.

    A tensor with one channel is broadcast over the others', and so keeps it. Keras aligns tensors
    of fewer axes at the last one.
    """
    rank = len(site.output.shape)
    from_end = {len(channels.shape) - channels.axis for channels in site.inputs}
    aligned = len({len(channels.shape) for channels in site.inputs}) == 1
    if len(from_end) > 1 or (not aligned and from_end != {1}):
        return site.protect(f"{site.name}: its inputs have their channels on different axes")
    axis = rank - from_end.pop()
    widest = max((channels.labels for channels in site.inputs), key=len)
    for channels in site.inputs:
        if len(channels.labels) == len(widest):
            site.sets.unite(widest, channels.labels)
        else:
            site.sets.protect(channels.labels, f"{site.name}: broadcast over channels")
    return Effect(site.passes(widest, axis))
