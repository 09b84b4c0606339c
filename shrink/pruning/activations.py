"""What layers are given when the unpruned model sees examples."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.graph.groups import ChannelGraph, Member
from shrink.graph.rebuild import rebuild, weights_of
from shrink.pruning.verify import feed

_BATCH = 25


@dataclass(frozen=True)
class Activity:
    """How active a layer's input is, over examples and positions; float64 (features,) each.

    Attributes:
        nonzero: fraction of values that are not zero, 1 - APoZ.
        magnitude: mean absolute value.
    """

    nonzero: np.ndarray
    magnitude: np.ndarray


def activity(
    graph: ChannelGraph, examples: Callable[[], Sequence[np.ndarray]]
) -> Callable[[], Mapping[str, Activity]]:
    """Return a function that measures at its first call: the activity by name of the layer.

    Only layers of one input whose last axis is what their kernel reads are in it.

    Args:
        graph: the unpruned model's.
        examples: one array (n, ...) per input of the model.
    """
    return functools.cache(lambda: _measure(graph, examples()))


def calls(model: keras.Model, layer: str) -> list[Any]:
    """Return the (first) input tensor of each call of a layer."""
    nodes = model.get_layer(layer)._inbound_nodes
    return [tf.nest.flatten(node.input_tensors)[0] for node in nodes]


def activations(
    model: keras.Model, tensors: Sequence[Any], x: Sequence[np.ndarray], batch: int = _BATCH
) -> Iterator[list[np.ndarray]]:
    """Yield, batch by batch, the values of some of a model's tensors.

    Args:
        x: examples, one array (n, ...) per input.
        batch: examples at a time.
    """
    probe = keras.Model(model._nested_inputs, list(tensors))
    for start in range(0, len(x[0]), batch):
        values = probe(feed(probe, [part[start : start + batch] for part in x]), training=False)
        yield [np.asarray(value) for value in tf.nest.flatten(values)]


def _measure(graph: ChannelGraph, x: Sequence[np.ndarray]) -> dict[str, Activity]:
    model = rebuild(graph, graph.keep(np.array([])), weights_of(graph))
    members = [m for group in graph.groups for m in group.members if m.role == "input"]
    names = list(dict.fromkeys(m.layer for m in members if _reads_last_axis(model, m)))
    owners = [(name, tensor) for name in names for tensor in calls(model, name)]
    rows = dict.fromkeys(names, 0)
    nonzero = {name: np.zeros(tensor.shape[-1]) for name, tensor in owners}
    magnitude = {name: np.zeros(tensor.shape[-1]) for name, tensor in owners}
    for values in activations(model, [tensor for _, tensor in owners], x) if owners else ():
        for (name, _), value in zip(owners, values, strict=True):
            flat = np.abs(value.reshape(-1, value.shape[-1]))
            rows[name] += len(flat)
            nonzero[name] += np.count_nonzero(flat, axis=0)
            magnitude[name] += flat.sum(0, dtype=np.float64)
    return {n: Activity(nonzero[n] / rows[n], magnitude[n] / rows[n]) for n in names}


def _reads_last_axis(model: keras.Model, member: Member) -> bool:
    layer = model.get_layer(member.layer)
    width = layer.weights[member.weight].shape[member.axis]
    inputs = [tf.nest.flatten(node.input_tensors) for node in layer._inbound_nodes]
    return all(len(given) == 1 and given[0].shape[-1] == width for given in inputs)
