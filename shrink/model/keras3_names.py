"""Names of the layers that an import adds: none may be that of a layer of the file."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf


def rename_added_layers(outputs: Any, own: Iterable[Any]) -> None:
    """Give the layers before these outputs other names where the file's layers have them.

    tf-keras numbers the names that it gives, but does not look whether one was given before.

    Args:
        outputs: symbolic tensors, in any structure.
        own: the layers that stand for those of the file, which keep their names.
    """
    kept = {id(layer): layer for layer in own}
    taken = {layer.name for layer in kept.values()}
    for layer in _layers_before(tf.nest.flatten(outputs)):
        if id(layer) in kept:
            continue
        names = itertools.chain([layer.name], (f"{layer.name}_{n}" for n in itertools.count(1)))
        layer._name = next(name for name in names if name not in taken)
        taken.add(layer.name)


def _layers_before(tensors: list[Any]) -> Iterator[Any]:
    """Yield every layer that these tensors come from, once."""
    seen: set[int] = set()
    yielded: set[int] = set()
    waiting = [tensor._keras_history for tensor in tensors]
    while waiting:
        history = waiting.pop()
        node = history.layer._inbound_nodes[history.node_index]
        if id(node) in seen:
            continue
        seen.add(id(node))
        if id(history.layer) not in yielded:
            yielded.add(id(history.layer))
            yield history.layer
        waiting.extend(tensor._keras_history for tensor in node.keras_inputs)
