"""Losses and metrics that were added to a model: nodes of its graph that lead to no output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tf_keras as keras


def with_losses(model: keras.Model, other: keras.Model) -> keras.Model:
    """Return `other` with the losses and metrics that were added to `model`.

    Args:
        model: functional.
        other: functional, of the same layers and inputs, such as one that ends earlier.
    """
    nodes = [node for node in _nodes(model) if _adds(node.layer)]
    known = {id(layer) for layer in other.layers}
    wanted: dict[int, Any] = {}
    while nodes:
        node = nodes.pop()
        if id(node) not in wanted and not node.is_input:
            wanted[id(node)] = node
            nodes += node.parent_nodes
    layers = {id(node.layer): node.layer for node in wanted.values()}
    apart = [layer for key, layer in layers.items() if key not in known]
    if apart:
        other._insert_layers(apart, list(wanted.values()))
    return other


def _nodes(model: keras.Model) -> Iterator[Any]:
    for nodes in model._nodes_by_depth.values():
        yield from nodes


def _adds(layer: keras.layers.Layer) -> bool:
    return type(layer).__name__ in ("AddLoss", "AddMetric")
