"""Sets of channels that must go together, and what layers do to the channels that pass them.

Each position along a tensor's channel axis has a label. Layers copy labels (activations), repeat
them (flattening), join them (concatenation) or unite them (addition); what ends in one set is
removed together or not at all, as in DepGraph (Fang et al. 2023, "Towards Any Structural
Pruning"), but channel by channel instead of layer by layer.

Example: `Flatten()(Add()([a, b]))` of two convolutions that give (None, 2, 2, 2) each. `a` makes
the labels [3 4] and `b` makes [5 6]; Add unites 3 with 5 and 4 with 6, which are two sets then.
Flatten repeats the labels along its 8 values, [3 4 3 4 3 4 3 4]. With the first set go a filter of
`a`, the one of `b` that is added to it, and rows 0, 2, 4 and 6 of the dense kernel that follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.graph.network import Call, Ref

Labels = np.ndarray
"""int64 (channels,): the label of each position along a channel axis."""


@dataclass(frozen=True)
class Channels:
    """The channels of one tensor.

    Attributes:
        shape: of the tensor, batch included; None for an unknown dimension.
        axis: the channel axis, counted with the batch as 0.
        labels: one label per position of that axis; empty where its length is unknown.
    """

    shape: tuple[int | None, ...]
    axis: int
    labels: Labels

    @property
    def is_last(self) -> bool:
        """Whether the channels are the last axis."""
        return self.axis == len(self.shape) - 1


@dataclass
class ChannelSets:
    """A union-find over labels, with the reasons why some must stay."""

    _parent: list[int] = field(default_factory=list)
    _reasons: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._parent)

    def new(self, count: int) -> Labels:
        """Return `count` fresh labels, each a set of its own."""
        start = len(self._parent)
        self._parent.extend(range(start, start + count))
        return np.arange(start, start + count)

    def find(self, label: int) -> int:
        """Return the representative of a label's set."""
        root = label
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[label] != root:
            self._parent[label], label = root, self._parent[label]
        return root

    def roots(self, labels: Labels) -> Labels:
        """Return the representative of each label, of the same shape."""
        unique, inverse = np.unique(labels, return_inverse=True)
        representatives = np.array([self.find(int(label)) for label in unique], np.int64)
        return representatives[inverse].reshape(np.shape(labels))

    def unite(self, left: Labels, right: Labels) -> None:
        """Make one set of each pair of labels at the same position."""
        pairs = {(int(a), int(b)) for a, b in zip(left, right, strict=True) if a != b}
        for a, b in pairs:
            self._unite(a, b)

    def protect(self, labels: Labels, reason: str) -> None:
        """Keep these channels for the reason given; the first reason of a set is the one told."""
        for label in np.unique(labels):
            self._reasons.setdefault(self.find(int(label)), reason)

    def reason(self, label: int) -> str | None:
        """Return why the label's set must stay, None where it may go."""
        return self._reasons.get(self.find(label))

    def _unite(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        low, high = min(a, b), max(a, b)
        self._parent[high] = low
        reason = self._reasons.pop(high, None)
        if reason is not None:
            self._reasons.setdefault(low, reason)


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
    """Return the number of positions of one example, but for its last axis; unknown ones as 1."""
    dimensions = ref.shape[1:-1] if skip_last else ref.shape[1:]
    return math.prod(length or 1 for length in dimensions)


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
    before, after = _dimensions(channels.shape), _dimensions(shape)
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


def _dimensions(shape: tuple[int | None, ...]) -> list[int] | None:
    """Return the shape without the batch, None where a dimension is unknown."""
    known = [length for length in shape[1:] if length is not None]
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
