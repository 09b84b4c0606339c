"""Layers whose result depends on how a batch is split, found in the traced graph of a model.

Custom layers, and functions that are given to Keras' layers, may call anything: the operations of
the graph that they are traced into show it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Literal

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.base.keras_internals import (
    added_losses,
    inner_layers,
    layers_of,
    parts_of,
    saved_generator,
    stateful_generator,
)
from shrink.base.types import Tensors
from shrink.engine.config import BatchNormMode
from shrink.graph.network import is_batch_norm

Effect = Literal["draws", "forgets", "remembers", "calls Python"]
"""`forgets`: it draws from a state of TensorFlow's that no checkpoint holds."""

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


def forward_effects(model: keras.Model) -> dict[keras.layers.Layer, set[Effect]]:
    """Return the effects of each layer in training that differ from one forward pass to the next.

    Args:
        model: a Keras model; one that was never called has no graph, and so no effects.

    Returns:
        By layer, of nested models too; effects outside of all layers by the model itself.
    """
    if getattr(model, "inputs", None):
        specs = [tf.TensorSpec(each.shape, each.dtype) for each in model.inputs]
        specs = specs if len(specs) > 1 else specs[0]
    elif isinstance(model, tf.Module) and (called := model.save_spec()) is not None:
        specs = called[0][0]
    else:
        return {}

    def forward(inputs: Tensors) -> Tensors:
        return model(inputs, training=True)

    # Inside the replicas' own context: layers that synchronise work only there.
    run = tf.function(lambda inputs: model.distribute_strategy.run(forward, (inputs,)))
    graph = run.get_concrete_function(specs).graph.as_graph_def()
    effects: dict[keras.layers.Layer, set[Effect]] = {}
    for path, operation in _operations(graph):
        own_effects = {name for name, pattern in _OPERATIONS.items() if pattern.search(operation)}
        if own_effects:
            effects.setdefault(_layer_at(path, model), set()).update(own_effects)
    return effects


def layers_that_compute(operation: str, model: keras.Model, graph: tf.Graph) -> list[str]:
    """Return the names of a model's layers that have an operation of a type in a graph."""
    paths = (path for path, kind in _operations(graph.as_graph_def()) if kind == operation)
    return list(dict.fromkeys(_layer_at(path, model).name for path in paths))


def _operations(graph: tf.compat.v1.GraphDef) -> Iterator[tuple[str, str]]:
    """Yield the path of names to each operation, loops' and branches' too, and its type."""
    functions = {each.signature.name: each.node_def for each in graph.library.function}

    def walk(nodes: Iterable[tf.compat.v1.NodeDef], prefix: str) -> Iterator[tuple[str, str]]:
        for node in nodes:
            yield prefix + node.name, node.op
            for attribute in node.attr.values():
                for called in (attribute.func, *attribute.list.func):
                    if called.name in functions:
                        yield from walk(functions[called.name], f"{prefix}{node.name}/")

    return walk(graph.node, "")


def _layer_at(path: str, model: keras.Model) -> keras.layers.Layer:
    """Return the innermost layer that an operation belongs to, by the names of their scopes."""
    layer, rest = model, path.partition(f"{model.name}/")[2]
    while True:
        inner = [
            (name == part.name, len(name), part, name)
            for part in inner_layers(layer)
            # A scope is numbered after its first use.
            if (scope := re.match(rf"({re.escape(part.name)}(_\d+)?)/", rest))
            for name in scope.groups()[:1]
        ]
        if not inner:
            return layer
        *_, layer, name = max(inner, key=lambda candidate: candidate[:2])
        rest = rest.removeprefix(f"{name}/")


_BATCH_NORM = "statistics are per micro-batch and replica; training.batch_norm: frozen keeps them"
_SYNCHRONIZED = (
    "statistics are per micro-batch of all replicas; a training.micro_batch_size of a replica's"
    " whole share makes them those of the batch"
)
_RANDOM = "its random numbers depend on how the batch is split; equal in distribution only"
_FORGOTTEN = "it draws random numbers itself, and drew others when training was resumed"
_ADDED = (
    "whether a loss of its own (add_loss) is a sum or a mean over the batch is unknown; it is"
    " treated as a mean, which is exact"
)
_RANGES = "its quantization ranges are updated in every forward pass"
_STATE = "its state is updated in every forward pass"
_PYTHON = "its Python code may depend on how the batch is split"

_QUANTIZED = {"QuantizeWrapper", "QuantizeWrapperV2", "QuantizeLayer"}
_PRUNED = {"PruneLowMagnitude"}


def inexact_because(
    model: keras.Model,
    *,
    replicas: int,
    accumulation_steps: int,
    batch_norm: BatchNormMode,
    continued: bool = False,
) -> tuple[str, ...]:
    """Return a reason for each layer whose result depends on how the global batch is split.

    Or on where training was cut short.

    Args:
        model: the trained model; nested models are looked into.
        replicas: copies of the model that share a batch.
        accumulation_steps: micro-batches of each replica.
        batch_norm: which statistics batch normalisation uses.
        continued: whether training went on from a checkpoint.
    """
    is_split, looped = replicas * accumulation_steps > 1, accumulation_steps > 1
    if not is_split and not continued:
        return ()
    effects, reasons = forward_effects(model), dict[str, str]()
    for layer in (model, *layers_of(model)):
        own = effects.get(layer, set())
        why = _reason(layer, batch_norm, looped, own) if is_split else None
        if why is None and continued and "forgets" in own and not _draws_nothing(layer):
            inner = [layer] if isinstance(layer, keras.Model) else parts_of(layer)
            if not any(
                stateful_generator(each) is not None or saved_generator(each) is not None
                for each in inner
            ):
                why = _FORGOTTEN
        if why is not None:
            reasons[layer.name] = why
    return tuple(sorted(f"{name}: {why}" for name, why in reasons.items()))


def _reason(
    layer: keras.layers.Layer, batch_norm: BatchNormMode, looped: bool, effects: Collection[Effect]
) -> str | None:
    if is_batch_norm(layer):
        if not layer.trainable or batch_norm == "frozen":
            return None
        if batch_norm == "synchronized" or layer.synchronized:
            return _SYNCHRONIZED if looped else None
        return _BATCH_NORM
    if "draws" in effects and not _draws_nothing(layer):
        return _RANDOM
    # Regularisers of weights do not depend on the batch; Keras divides those of activities by its
    # size. Other losses were added when the layer was last called.
    added = added_losses(layer) and layer.activity_regularizer is None
    if added or "AddLoss" in _class_names(layer):
        return _ADDED
    if "remembers" in effects:
        return _RANGES if _class_names(layer) & _QUANTIZED else _STATE
    return _PYTHON if "calls Python" in effects else None


def _draws_nothing(layer: keras.layers.Layer) -> bool:
    """Whether a layer draws numbers only to multiply them by 0."""
    return type(layer) is keras.layers.GaussianNoise and layer.stddev == 0


def mixes_examples(forward: Callable[[Tensors], Tensors], x: Tensors, precision: str) -> bool:
    """Return whether outputs change with the other examples of a batch, as a batch's mean does.

    Custom layers may compute anything: the model is run.

    Args:
        forward: returns the outputs of inputs, in training.
        x: structure of arrays (n, ...), the inputs of some examples.
        precision: a policy of Keras, such as mixed_bfloat16.
    """
    count = len(tf.nest.flatten(x)[0])
    half = count // 2
    # As many as before: a model may take batches of one size only, and sums stay in their order.
    others = np.r_[:half, : count - half]
    batches = (x, tf.nest.map_structure(lambda part: part[others], x))
    one, two = (
        [np.asarray(output[:half], np.float64) for output in tf.nest.flatten(forward(batch))]
        for batch in batches
    )
    rounding = 1e-2 if tf.as_dtype(precision.removeprefix("mixed_")).size > 2 else 1e-1
    return any(
        bool(np.abs(a - b).max(initial=0) > rounding * np.abs(a).max(initial=0))
        for a, b in zip(one, two, strict=True)
    )


def synchronising_layers(model: keras.Model) -> tuple[str, ...]:
    """Return the names of layers that exchange values between replicas in their forward pass."""
    return tuple(
        layer.name
        for layer in layers_of(model)
        if getattr(layer, "synchronized", False) or _class_names(layer) & (_QUANTIZED | _PRUNED)
    )


def _class_names(layer: keras.layers.Layer) -> set[str]:
    return {base.__name__ for base in type(layer).__mro__}
