"""What a layer does with channels: the vocabulary that rules are written in."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

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
