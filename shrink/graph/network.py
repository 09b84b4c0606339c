"""A Keras model as a graph of layer calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import tensorflow as tf
import tf_keras as keras

from shrink.base.keras_internals import (
    insert_layers,
    is_functional,
    is_symbolic,
    made_by,
    nodes_of,
    own_weights,
    parts_of,
    takes_training,
)
from shrink.base.types import Tensors

if TYPE_CHECKING:
    from tf_keras.src.engine.node import Node

Structure = TypeVar("Structure")
Arguments: TypeAlias = tuple[tuple[object, ...], dict[str, object]]
"""Those of a call, by place and by name: tensors and constants in nested lists and dicts."""


@dataclass(frozen=True)
class Ref:
    """One tensor between layers: its number, and its shape with the batch (None) first."""

    index: int
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class Call:
    """One call of a layer.

    Attributes:
        layer: the layer; a shared one has several calls.
        arguments: `(args, kwargs)` of the call, with a `Ref` in place of each tensor.
        inputs: the tensors among the arguments, in order.
        outputs: what the call gives.
    """

    layer: keras.layers.Layer
    arguments: Arguments
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]


@dataclass
class Network:
    """The calls of a model in an order in which they can be made.

    Attributes:
        model: the model itself.
        calls: every call, those inside nested models included.
        inputs: the model's inputs, each with its input layer.
        outputs: the model's outputs.
        nested: the functional models inside, once for each of their calls.
        names: a name for each layer, by `id`; unique. That of the output which it makes, else the
            layer's own wherever that is free.
    """

    model: keras.Model
    calls: list[Call] = field(default_factory=list)
    inputs: list[tuple[keras.layers.Layer, Ref]] = field(default_factory=list)
    outputs: list[Ref] = field(default_factory=list)
    nested: list[keras.Model] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def name(self, layer: keras.layers.Layer) -> str:
        """Return the layer's name in the flattened model."""
        return self.names[id(layer)]

    def layers(self) -> list[keras.layers.Layer]:
        """Return each layer that is called, once, in the order of its first call."""
        return list({id(call.layer): call.layer for call in self.calls}.values())

    def affected(self, layers: Collection[int], tensors: Collection[int] = ()) -> set[int]:
        """Return the `id` of each layer that gets other inputs once some layers change.

        Args:
            layers: `id` of each layer that changes.
            tensors: indices of other tensors that change.
        """
        changed, found = set(tensors), set[int]()
        for call in self.calls:
            if any(ref.index in changed for ref in call.inputs):
                found.add(id(call.layer))
            elif id(call.layer) not in layers:
                continue
            changed |= {ref.index for ref in call.outputs}
        return found


def is_frozen(layer: keras.layers.Layer) -> bool:
    """Whether a layer, or a part of it, has weights that training would learn but must not."""
    parts = parts_of(layer)
    return any(not x.trainable and (own_weights(x) or is_batch_norm(x)) for x in parts)


def is_batch_norm(layer: keras.layers.Layer) -> bool:
    """Whether a layer is a batch normalization, of any of tf-keras' kinds."""
    return any(base.__name__ == "BatchNormalizationBase" for base in type(layer).__mro__)


def read_network(model: keras.Model) -> Network:
    """Return the layer calls of a functional or built sequential model."""
    return _Reader(model).network


class _Reader:
    """Walks a model's nodes by depth and gives every tensor a number."""

    def __init__(self, model: keras.Model) -> None:
        self.network = Network(model)
        self._count = 0
        # Outputs keep the names that losses, targets and artifacts know them by.
        self._outputs = {
            id(_leaf(tensor)): name
            for tensor, name in reversed(list(zip(model.outputs, model.output_names, strict=True)))
        }
        self._taken: set[str] = set(self._outputs.values())
        refs = []
        for tensor in model.inputs:
            layer, ref = made_by(tensor)[0], self._new(tensor)
            self._name(layer, model)
            self.network.inputs.append((layer, ref))
            refs.append(ref)
        self.network.outputs = self._walk(model, refs)

    def _new(self, tensor: tf.Tensor) -> Ref:
        self._count += 1
        return Ref(self._count - 1, tuple(tensor.shape))

    def _name(self, layer: keras.layers.Layer, owner: keras.Model) -> None:
        if id(layer) in self.network.names:
            return
        if (output := self._outputs.get(id(layer))) is not None:
            self.network.names[id(layer)] = output
            return
        name = layer.name if layer.name not in self._taken else f"{owner.name}_{layer.name}"
        number, base = 1, name
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        self.network.names[id(layer)] = name

    def _walk(
        self, model: keras.Model, inputs: Sequence[Ref], training: object = None
    ) -> list[Ref]:
        """Add a model's calls, given the tensors that it is called with; return its outputs.

        A nested model that is called with `training=False`, as a frozen base often is, calls its
        layers so.
        """
        known = {id(t): ref for t, ref in zip(model.inputs, inputs, strict=True)}
        for node in nodes_of(model):
            if not node.is_input:
                self._add(node, known, model, training)
        return [known[id(t)] for t in model.outputs]

    def _add(self, node: Node, known: dict[int, Ref], owner: keras.Model, training: object) -> None:
        args, kwargs = map_tensors(lambda t: known[id(t)], (node.call_args, node.call_kwargs))
        nested = is_functional(node.layer)
        own = args[1] if nested and len(args) > 1 else kwargs.get("training")
        if own is not None:
            training = own
        elif training is not None and takes_training(node.layer):
            kwargs = {**kwargs, "training": training}
        inputs = tuple(known[id(t)] for t in node.keras_inputs)
        outputs = tf.nest.flatten(node.outputs)
        if nested:
            self.network.nested.append(node.layer)
            refs: Sequence[Ref] = self._walk(node.layer, inputs, training)
        else:
            self._name(node.layer, owner)
            refs = [self._new(t) for t in outputs]
            self.network.calls.append(Call(node.layer, (args, kwargs), inputs, tuple(refs)))
        known.update({id(t): ref for t, ref in zip(outputs, refs, strict=True)})


def _leaf(tensor: tf.Tensor) -> keras.layers.Layer:
    """Return the layer that makes a tensor, inside of nested models."""
    layer, _, index = made_by(tensor)
    return _leaf(layer.outputs[index]) if is_functional(layer) else layer


def map_tensors(
    change: Callable[[Ref | tf.Tensor], Ref | tf.Tensor], structure: Structure
) -> Structure:
    """Return the structure with every Keras tensor or `Ref` in it replaced by `change` of it."""

    def leaf(value: Tensors) -> Tensors:
        is_tensor = isinstance(value, Ref) or is_symbolic(value)
        return change(value) if is_tensor else value

    return _map(leaf, structure)


def _map(leaf: Callable[[Tensors], Tensors], value: Tensors) -> Tensors:
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_map(leaf, item) for item in value)
    if isinstance(value, dict):
        return {key: _map(leaf, item) for key, item in value.items()}
    return leaf(value)


def with_losses(model: keras.Model, other: keras.Model) -> keras.Model:
    """Return `other` with the losses and metrics that were added to `model`.

    Args:
        model: functional.
        other: functional, of the same layers and inputs, such as one that ends earlier.
    """
    nodes = [n for n in nodes_of(model) if type(n.layer).__name__ in ("AddLoss", "AddMetric")]
    known = {id(layer) for layer in other.layers}
    needed: dict[int, Node] = {}
    while nodes:
        node = nodes.pop()
        if id(node) not in needed and not node.is_input:
            needed[id(node)] = node
            nodes += node.parent_nodes
    layers = {id(node.layer): node.layer for node in needed.values()}
    apart = [layer for key, layer in layers.items() if key not in known]
    if apart:
        insert_layers(other, apart, list(needed.values()))
    return other
