"""Masked equals rebuilt, with a control that must not; used by every topology's test."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.graph.groups import ChannelGraph, find_groups
from shrink.graph.rebuild import Weights, masked, rebuild, weights_of

TOLERANCE = 1e-4
Expected = Mapping[str, int]


def check(
    model: keras.Model, expected: Expected | None = None, ratios: tuple[float, ...] = (0.5,)
) -> ChannelGraph:
    """Prune every group at random and compare; return the channels for further checks.

    Args:
        expected: channels of each group by the names of the layers that make them, joined by +.
    """
    randomise(model)
    graph = find_groups(model)
    if expected is not None:
        wanted = {frozenset(names.split("+")): count for names, count in expected.items()}
        assert {frozenset(g.layers): len(g) for g in graph.groups} == wanted
    x = examples(model)
    weights = weights_of(graph)
    full = rebuild(graph, graph.keep(np.array([], np.int64)), weights)
    assert difference(outputs(full, x), outputs(model, x)) <= 1e-6
    assert full.output_names == model.output_names
    assert graph.parameters(graph.keep(np.array([], np.int64))) == model.count_params()
    for ratio in ratios:
        removed = choose(graph, ratio)
        keep = graph.keep(removed)
        small = rebuild(graph, keep, weights)
        assert small.count_params() == graph.parameters(keep)
        if removed.size:
            assert small.count_params() < model.count_params()
        got = outputs(small, x)
        assert all(np.isfinite(y).all() for y in got)
        load(full, graph, masked(graph, keep, weights))
        assert difference(got, outputs(full, x)) <= TOLERANCE
        if graph.groups:
            assert control(full, graph, removed, weights, got, x) > 100 * TOLERANCE
    return graph


def control(
    full: keras.Model,
    graph: ChannelGraph,
    removed: np.ndarray,
    weights: Weights,
    got: list[np.ndarray],
    x: list[np.ndarray],
) -> float:
    """Return how far the outputs move when one kept channel is masked too, at most over groups."""
    largest = 0.0
    for group in reversed(graph.groups):
        kept = np.setdiff1d(group.channels, removed)
        broken = graph.keep(np.append(removed, kept[0]))
        load(full, graph, masked(graph, broken, weights))
        largest = max(largest, difference(got, outputs(full, x)))
        if largest > 100 * TOLERANCE:
            break
    return largest


def choose(graph: ChannelGraph, ratio: float, seed: int = 0) -> np.ndarray:
    """Return channels to remove: `ratio` of each group, but one."""
    random = np.random.default_rng(seed)
    parts = [random.choice(g.channels, int(ratio * len(g)), replace=False) for g in graph.groups]
    return np.concatenate([np.array([], np.int64), *parts])


def randomise(model: keras.Model, seed: int = 0) -> None:
    """Give every weight a value of its own, and batch norms the statistics of their inputs."""
    random = np.random.default_rng(seed)
    for layer in model._flatten_layers(include_self=False, recursive=True):
        if isinstance(layer, keras.Model) or not layer.weights:
            continue
        if hasattr(layer, "_flatten_layers") and len(list(layer._flatten_layers())) > 1:
            continue
        layer.set_weights([_values(w, random) for w in layer.weights])
    _settle(model)


def _values(weight: tf.Variable, random: np.random.Generator) -> np.ndarray:
    shape = tuple(weight.shape)
    if "variance" in weight.name or "gamma" in weight.name:
        return random.uniform(0.5, 1.5, shape)
    if len(shape) < 2:
        return random.normal(0, 0.3, shape)
    fan_in = max(1, int(np.prod(shape[:-1])))
    if "depthwise" in weight.name:
        fan_in = int(np.prod(shape[:-2]))
    return random.normal(0, np.sqrt(2 / fan_in), shape)


def _settle(model: keras.Model) -> None:
    norms = [
        layer
        for layer in model._flatten_layers(include_self=False, recursive=True)
        if isinstance(layer, keras.layers.BatchNormalization)
    ]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    model(_structured(model, examples(model, 8, seed=2)), training=True)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def examples(model: keras.Model, count: int = 3, seed: int = 1) -> list[np.ndarray]:
    """Return one array of `count` random examples per input; integers where they are indices."""
    random = np.random.default_rng(seed)
    arrays = []
    for tensor in model.inputs:
        shape = (count, *(side or 6 for side in tensor.shape[1:]))
        if tensor.dtype.is_integer:
            arrays.append(random.integers(0, 5, shape))
        else:
            arrays.append(random.normal(size=shape).astype(np.float32))
    return arrays


def outputs(model: keras.Model, x: list[np.ndarray]) -> list[np.ndarray]:
    """Return the model's outputs in inference mode."""
    return [np.asarray(y) for y in tf.nest.flatten(model(_structured(model, x), training=False))]


def _structured(model: keras.Model, x: list[np.ndarray]) -> object:
    return tf.nest.pack_sequence_as(model._nested_inputs, [tf.constant(a) for a in x])


def difference(got: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """Return the largest difference relative to the largest wanted value, over all outputs."""
    return max(
        float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(got, wanted, strict=True)
    )


def load(model: keras.Model, graph: ChannelGraph, weights: Weights) -> None:
    """Set the weights of an unpruned rebuilt model."""
    for name in graph.layers:
        if weights[name]:
            model.get_layer(name).set_weights(weights[name])
