"""Looks whether the layers of a functional configuration can be called in some order.

tf-keras calls a layer as soon as its inputs are there, and waits without end for inputs that never
come: a node that does not exist, or layers that wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shrink.base.refusal import refused
from shrink.model.allowlist import MODELS

_REFERENCE_LENGTHS = (3, 4)
Reference = tuple[str, Any]


def check_nodes(config: Mapping[str, Any], where: str, path: Path) -> None:
    """Raise `ModelError` where a layer waits for an input that never comes.

    Args:
        config: of a model, with `layers`; nodes as Keras 3 writes them are left to the import.
        where: the names around it, for messages.
        path: the file, for messages.
    """
    layers = [each for each in config["layers"] if isinstance(each, dict)]
    free = {_name(each) for each in layers if each.get("class_name") == "InputLayer"}
    models = {_name(each) for each in layers if str(each.get("class_name")) in MODELS}
    waiting = {_name(each): _nodes(each) for each in layers if _name(each) not in free}
    called = dict.fromkeys(waiting, 0)
    progress = True
    while progress:
        progress = False
        for name, nodes in waiting.items():
            while called[name] < len(nodes) and all(
                _is_there(reference, free, models, called) for reference in nodes[called[name]]
            ):
                called[name] += 1
                progress = True
    for name, nodes in waiting.items():
        if called[name] < len(nodes):
            raise refused("a layer waits for an input that never comes", f"{where}/{name}", path)


def _is_there(
    reference: Reference, free: set[str], models: set[str], called: Mapping[str, int]
) -> bool:
    name, index = reference
    if name in free or name not in called:  # Keras itself refuses a name that it does not know
        return True
    # Of a model the first node may be its own, from its inputs to its outputs.
    first = int(name in models)
    return isinstance(index, int) and called[name] > 0 and 0 <= index < called[name] + first


def _name(layer: Mapping[str, Any]) -> str:
    name = layer.get("name")
    return name if isinstance(name, str) else ""


def _nodes(layer: Mapping[str, Any]) -> list[list[Reference]]:
    nodes = layer.get("inbound_nodes")
    if not isinstance(nodes, list):
        return []
    return [list(_references(node)) for node in nodes if isinstance(node, list)]


def _references(value: Any) -> Iterator[Reference]:
    """Yield layer and node of every tensor that a node names, as tf-keras finds them."""
    if isinstance(value, list):
        if len(value) in _REFERENCE_LENGTHS and isinstance(value[0], str):
            yield value[0], value[1]
            value = value[3:]
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _references(item)
