"""The groups of channels that a model's layers make, and what they cost.

A channel here is a set of positions along axes of weights and tensors that go together (see
`shrink.graph.channels`); a group is all channels that the same layers make (Torch-Pruning's
Group). Channels of one group can stand in for each other; no set of whole channels, as long as
one of each group stays, leaves a layer without any.

Example: `Dense(2, name="b")(Dense(3, name="a")(x))` for x of (None, 4). The three outputs of `a`
are the one group, called a. Its members are axis 1 of a's kernel (role output), axis 0 of a's bias
(channel) and axis 0 of b's kernel (input). What `b` makes is the model's output: protected. Without
one channel 16 of 23 parameters are left, (4·2 + 2) + (2·2 + 2), and 12 of 18 multiply-accumulates.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tf_keras as keras

from shrink.contract.report import Skipped
from shrink.graph.channels import (
    Channels,
    ChannelSets,
    Edit,
    Effect,
    Labels,
    Role,
    Site,
    WeightAxis,
    WeightUse,
)
from shrink.graph.layers import RULES, Rule, apply_rule
from shrink.graph.network import Call, Network, Ref, read_network


@dataclass(frozen=True)
class Member:
    """An axis of a layer's weight that has channels of a group.

    Attributes:
        layer: its name in the flattened model.
        weight: index in `layer.weights`.
        positions: for each channel of the group, its positions on the axis; may be empty.
    """

    layer: str
    weight: int
    axis: int
    role: Role
    positions: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Group:
    """Channels made by the same layers.

    Attributes:
        layers: names of the layers that make them, in the order of their first call.
        channels: representative label of each channel, ascending.
        members: every axis of a weight that has some of them.
    """

    layers: tuple[str, ...]
    channels: Labels
    members: tuple[Member, ...]

    @property
    def name(self) -> str:
        """The first layer's name."""
        return self.layers[0]

    def __len__(self) -> int:
        return len(self.channels)


@dataclass
class LayerChannels:
    """All that is known of one layer's channels, over all its calls."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    weights: dict[int, WeightUse] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()
    produces: Labels | None = None


@dataclass(frozen=True)
class ChannelGraph:
    """A model's channels: its groups, its protected layers, and each layer's use of channels.

    Attributes:
        network: the flattened model.
        layers: by name.
        groups: what may be pruned.
        protected: layers none of whose channels may go, each with the reason.
        roots: representative of each label, indexed by label.
        excluded: names of layers that the recipe excludes.
    """

    network: Network
    layers: Mapping[str, LayerChannels]
    groups: tuple[Group, ...]
    protected: tuple[Skipped, ...]
    roots: Labels
    excluded: frozenset[str] = frozenset()

    def keep(self, removed: Labels) -> np.ndarray:
        """Return, for every label, whether it stays when these channels are removed."""
        return ~np.isin(self.roots, removed)

    def parameters(self, keep: np.ndarray) -> int:
        """Return the number of weights that are left, as `count_params` counts them."""
        return sum(
            math.prod(shape) for layer in self.layers.values() for shape in kept_shapes(layer, keep)
        )

    def macs(self, keep: np.ndarray) -> int:
        """Return the multiply-accumulates of one example in convolutions and dense layers."""
        total = 0
        for layer in self.layers.values():
            shapes = kept_shapes(layer, keep)
            total += sum(use.positions * math.prod(shapes[i]) for i, use in layer.weights.items())
        return total


def weight_shapes(layer: keras.layers.Layer) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of `layer.get_weights()`."""
    weights = layer.weights
    if all(hasattr(w, "shape") and w.shape.is_fully_defined() for w in weights):
        return tuple(tuple(map(int, w.shape)) for w in weights)
    return tuple(np.shape(array) for array in layer.get_weights())  # tables, adapted boundaries


def kept_shapes(layer: LayerChannels, keep: np.ndarray) -> list[tuple[int, ...]]:
    """Return the shape of each weight of a layer without the channels that go."""
    shapes = [list(shape) for shape in layer.shapes]
    for index, use in layer.weights.items():
        for axis in use.axes:
            shapes[index][axis.axis] = int(keep[axis.labels].sum())
    return [tuple(shape) for shape in shapes]


def find_groups(
    model: keras.Model, exclude: Sequence[str] = (), rules: Mapping[type, Rule] = RULES
) -> ChannelGraph:
    """Return the channel groups of a functional model, nested models flattened.

    Inputs and outputs of the model keep their channels, and so does whatever meets a layer
    without a rule.

    Args:
        exclude: shell patterns of layers whose channels stay.
        rules: what each kind of layer does with channels.
    """
    return _Finder(read_network(model), exclude, rules).graph()


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a layer's name matches one of some shell patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class _Finder:
    """Applies each call's rule in turn and gathers what layers and groups there are."""

    def __init__(
        self, network: Network, exclude: Sequence[str], rules: Mapping[type, Rule]
    ) -> None:
        self.network = network
        self.rules = rules
        self.exclude = exclude
        self.sets = ChannelSets()
        self.known: dict[int, Channels] = {}
        self.layers: dict[str, LayerChannels] = {}
        for layer, ref in network.inputs:
            self._input(layer.name, ref)
        for call in network.calls:
            self._apply(call)
        for ref in network.outputs:
            self.sets.protect(self.known[ref.index].labels, "an output of the model")

    def _input(self, name: str, ref: Ref) -> None:
        labels = self.sets.new((ref.shape[-1] or 0) if len(ref.shape) > 1 else 0)
        self.sets.protect(labels, f"{name}: an input of the model")
        self.known[ref.index] = Channels(ref.shape, len(ref.shape) - 1, labels)

    def _apply(self, call: Call) -> None:
        name = self.network.name(call.layer)
        record = self.layers.get(name)
        produced = record.produces if record else None
        inputs = tuple(self.known[ref.index] for ref in call.inputs)
        effect = apply_rule(Site(call, inputs, self.sets, name, produced), self.rules)
        self.known.update(
            {ref.index: c for ref, c in zip(call.outputs, effect.outputs, strict=True)}
        )
        if matches(name, self.exclude):
            for channels in effect.outputs:
                self.sets.protect(channels.labels, "excluded by the recipe")
        if record is None:
            self.layers[name] = self._record(name, call, effect)
        else:
            self._again(record, effect)

    def _record(self, name: str, call: Call, effect: Effect) -> LayerChannels:
        shapes = weight_shapes(call.layer)
        weights = {use.index: use for use in effect.weights}
        return LayerChannels(name, shapes, weights, effect.edits, effect.produces)

    def _again(self, record: LayerChannels, effect: Effect) -> None:
        """Unite the channels of a shared layer's calls: its weights are sliced once for all."""
        if len(record.weights) != len(effect.weights) or len(record.edits) != len(effect.edits):
            self._protect_shared(record, effect)
            return
        for use in effect.weights:
            first = record.weights[use.index]
            for a, b in zip(first.axes, use.axes, strict=True):
                self.sets.unite(a.labels, b.labels)
            count = first.positions + use.positions
            record.weights[use.index] = WeightUse(use.index, first.axes, count)
        for one, other in zip(record.edits, effect.edits, strict=True):
            if len(one.labels) == len(other.labels) and one.item == other.item:
                self.sets.unite(one.labels, other.labels)
            else:
                self._protect_shared(record, effect)

    def _protect_shared(self, record: LayerChannels, effect: Effect) -> None:
        reason = f"{record.name}: its calls see their channels differently"
        for use in (*record.weights.values(), *effect.weights):
            for axis in use.axes:
                self.sets.protect(axis.labels, reason)
        for edit in (*record.edits, *effect.edits):
            self.sets.protect(edit.labels, reason)

    def graph(self) -> ChannelGraph:
        """Return the groups of all calls, and what is protected."""
        roots = self.sets.roots(np.arange(len(self.sets)))
        groups = _partition(self.layers, roots, self.sets)
        protected = _protected(self.layers, self.sets)
        excluded = frozenset(name for name in self.layers if matches(name, self.exclude))
        return ChannelGraph(self.network, self.layers, groups, protected, roots, excluded)


def _partition(
    layers: Mapping[str, LayerChannels], roots: Labels, sets: ChannelSets
) -> tuple[Group, ...]:
    makers: dict[int, list[str]] = {}
    for layer in layers.values():
        if layer.produces is None:
            continue
        for root in np.unique(roots[layer.produces]):
            if sets.reason(int(root)) is None:
                makers.setdefault(int(root), []).append(layer.name)
    cells: dict[tuple[str, ...], list[int]] = {}
    for root, names in makers.items():
        cells.setdefault(tuple(names), []).append(root)
    uses = [
        (layer.name, use.index, axis)
        for layer in layers.values()
        for use in layer.weights.values()
        for axis in use.axes
    ]
    return tuple(_group(names, np.sort(channels), uses, roots) for names, channels in cells.items())


def _group(
    names: tuple[str, ...],
    channels: Labels,
    uses: Sequence[tuple[str, int, WeightAxis]],
    roots: Labels,
) -> Group:
    members = []
    for layer, weight, axis in uses:
        labels = roots[axis.labels]
        if np.isin(labels, channels).any():
            positions = tuple(np.flatnonzero(labels == channel) for channel in channels)
            members.append(Member(layer, weight, axis.axis, axis.role, positions))
    return Group(names, channels, tuple(members))


def _protected(layers: Mapping[str, LayerChannels], sets: ChannelSets) -> tuple[Skipped, ...]:
    entries = []
    for layer in layers.values():
        if layer.produces is None:
            continue
        reasons = [sets.reason(int(label)) for label in layer.produces]
        if all(reasons):
            reason = str(reasons[0]).removeprefix(f"{layer.name}: ")
            entries.append(Skipped(layer=layer.name, reason=reason))
    return tuple(entries)
