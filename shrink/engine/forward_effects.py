"""What a model's forward pass draws at random or remembers, as its traced graph says.

Layers of one's own, and functions that are given to Keras' layers, call what they like: only the
graph that they are traced into tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import tensorflow as tf

Effect = Literal["draws", "forgets", "remembers", "calls Python"]
"""What forgets draws from a state of TensorFlow's that no checkpoint holds."""

_OPERATIONS: Mapping[Effect, re.Pattern[str]] = {
    "draws": re.compile(
        r"Random|Rng|Multinomial|TruncatedNormal|StatelessShuffle|Stateful(?!PartitionedCall)"
    ),
    "forgets": re.compile(
        r"^(?!Stateless).*(Random|Multinomial|TruncatedNormal)|^Rng|^Stateful(?!PartitionedCall)"
    ),
    "remembers": re.compile(r"Assign|ResourceScatter"),
    "calls Python": re.compile(r"PyFunc"),
}


def forward_effects(model: Any) -> dict[Any, set[Effect]]:
    """Return what each layer does in training that another forward pass would not do alike.

    Args:
        model: a Keras model; what was never called, and so has no graph, has no effects.

    Returns:
        By layer, of nested models too; what belongs to none of them by the model itself.
    """
    specs = _input_specs(model)
    if specs is None:
        return {}

    def forward(inputs: Any) -> Any:
        return model(inputs, training=True)

    # Inside the replicas' own context: layers that synchronise work only there.
    run = tf.function(lambda inputs: model.distribute_strategy.run(forward, (inputs,)))
    graph = run.get_concrete_function(specs).graph.as_graph_def()
    effects: dict[Any, set[Effect]] = {}
    for path, operation in _operations(graph):
        found = {name for name, pattern in _OPERATIONS.items() if pattern.search(operation)}
        if found:
            effects.setdefault(_layer_at(path, model), set()).update(found)
    return effects


def layers_that_compute(operation: str, model: Any, graph: Any) -> list[str]:
    """Return the names of a model's layers that have an operation of a type in a graph."""
    found = (path for path, kind in _operations(graph.as_graph_def()) if kind == operation)
    return list(dict.fromkeys(_layer_at(path, model).name for path in found))


def _input_specs(model: Any) -> Any:
    """Return the specification of what a model is called with, or None where nobody knows."""
    if getattr(model, "inputs", None):
        specs = [tf.TensorSpec(each.shape, each.dtype) for each in model.inputs]
        return specs if len(specs) > 1 else specs[0]
    called = model.save_spec() if isinstance(model, tf.Module) else None
    return None if called is None else called[0][0]


def _operations(graph: Any) -> Iterator[tuple[str, str]]:
    """Yield the path of names to each operation, loops' and branches' too, and its type."""
    functions = {each.signature.name: each.node_def for each in graph.library.function}

    def walk(nodes: Any, prefix: str) -> Iterator[tuple[str, str]]:
        for node in nodes:
            yield prefix + node.name, node.op
            for attribute in node.attr.values():
                for called in (attribute.func, *attribute.list.func):
                    if called.name in functions:
                        yield from walk(functions[called.name], f"{prefix}{node.name}/")

    return walk(graph.node, "")


def _layer_at(path: str, model: Any) -> Any:
    """Return the innermost layer that an operation belongs to, by the names of their scopes."""
    layer, rest = model, path.partition(f"{model.name}/")[2]
    while True:
        inner = [
            (name == part.name, len(name), part, name)
            for part in layer._flatten_layers(recursive=False, include_self=False)
            if (name := _scope_of(part, rest))
        ]
        if not inner:
            return layer
        *_, layer, name = max(inner, key=lambda found: found[:2])
        rest = rest.removeprefix(f"{name}/")


def _scope_of(layer: Any, path: str) -> str:
    """Return the name of a layer's scope, if a path begins with it: numbered after its first."""
    found = re.match(rf"({re.escape(layer.name)}(_\d+)?)/", path)
    return found[1] if found else ""
