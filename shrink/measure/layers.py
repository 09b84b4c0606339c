"""What each layer of a Keras model, and each operator of a .tflite file, holds and computes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from shrink.graph.macs import operator_macs
from shrink.tflite.flatbuffer import (
    Operator,
    Subgraph,
    nonzero,
    operator_weights,
    read,
)
from shrink.tflite.planner import tensor_bytes


def layer_table(model: keras.Model, content: bytes) -> list[dict[str, Any]]:
    """Return a row per layer of a Keras model, nested models taken apart.

    Args:
        model: the model.
        content: its float32 .tflite form, whose operators tell the multiply-accumulates.

    Returns:
        `name` (nested: outer/inner), `type`, `parameters`, `macs` of one example (None where no
        operator is known to be the layer's and it has kernels), `activation_bytes` of one example's
        output, None where a side is unknown, and `sparsity`, the share of zeros in its kernels,
        None without kernels.
    """
    layers = dict(_leaves(model, ""))
    macs = _macs_by_layer(content, layers)
    return [
        {
            "name": path,
            "type": type(layer).__name__,
            "parameters": int(layer.count_params()),
            "macs": macs.get(path, None if _kernels(layer) else 0),
            "activation_bytes": _output_bytes(layer),
            "sparsity": _sparsity(layer),
        }
        for path, layer in layers.items()
    ]


def operator_table(graph: Subgraph, layers: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return a row per operator, in order of execution.

    Args:
        graph: of a .tflite file.
        layers: names of the Keras layers that it was made from, to tell the operators' layers.

    Returns:
        `name` (CONV_2D), `layer` or None, `inputs` and `outputs` (types of activations), `weights`
        (type of the weights, or None), `parameters`, `macs`, `activation_bytes` of the outputs,
        and `sparsity` of the weights, None where there are none.
    """
    return [
        {
            "name": operator.name,
            "layer": owner(graph, operator, layers),
            "inputs": _dtypes(graph, operator.inputs),
            "weights": next((t.dtype.lower() for t in operator_weights(graph, operator)), None),
            "outputs": _dtypes(graph, operator.outputs),
            **_held(graph, operator),
        }
        for operator in graph.operators
    ]


def owner(graph: Subgraph, operator: Operator, layers: Collection[str]) -> str | None:
    """Return the layer that an operator computes, told from its tensors' names; None if unknown.

    The converter names a tensor after the operations that it fused, last first, so of several
    layers (activation, batch normalization, convolution) the first one computed counts.
    """
    by_leaf = {path.rpartition("/")[2]: path for path in layers}
    tensors = [i for i in (*operator.outputs[:1], *operator.inputs[1:2]) if i >= 0]
    for index in tensors:
        parts = re.split("[;/]", graph.tensors[index].name)
        named = [by_leaf[part] for part in parts if part in by_leaf]
        if named:
            return named[-1]
    return None


def _held(graph: Subgraph, operator: Operator) -> dict[str, Any]:
    weights = operator_weights(graph, operator)
    count = sum(tensor.elements for tensor in weights)
    outputs = [graph.tensors[i] for i in operator.outputs if i >= 0]
    kernels = [tensor for tensor in weights if len(tensor.shape) > 1]
    size = sum(tensor.elements for tensor in kernels)
    kept = sum(nonzero(tensor) for tensor in kernels)
    return {
        "parameters": count,
        "macs": operator_macs(graph, operator),
        "activation_bytes": sum(tensor_bytes(tensor) for tensor in outputs),
        "sparsity": 1 - kept / size if size else None,
    }


def _macs_by_layer(content: bytes, layers: Mapping[str, Any]) -> dict[str, int]:
    graph = read(content)[0]
    found: dict[str, int] = {}
    for operator in graph.operators:
        path = owner(graph, operator, layers)
        if path is not None:
            found[path] = found.get(path, 0) + operator_macs(graph, operator)
    return found


def _leaves(model: keras.Model, prefix: str) -> Iterator[tuple[str, Any]]:
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _leaves(layer, f"{prefix}{layer.name}/")
        else:
            yield f"{prefix}{layer.name}", layer


def _output_bytes(layer: Any) -> int | None:
    nodes = getattr(layer, "inbound_nodes", ())
    shapes = tf.nest.flatten(nodes[0].outputs) if nodes else []
    if not shapes or any(side is None for tensor in shapes for side in tensor.shape[1:]):
        return None
    return sum(int(np.prod(t.shape[1:], dtype=np.int64)) * t.dtype.size for t in shapes)


def _kernels(layer: Any) -> list[Any]:
    return [weight for weight in layer.weights if len(weight.shape) > 1]


def _sparsity(layer: Any) -> float | None:
    kernels = [weight.numpy() for weight in _kernels(layer)]
    size = sum(kernel.size for kernel in kernels)
    return sum(int(np.sum(kernel == 0)) for kernel in kernels) / size if size else None


def _dtypes(graph: Subgraph, indices: tuple[int, ...]) -> list[str]:
    tensors = [graph.tensors[index] for index in indices if index >= 0]
    return [tensor.dtype.lower() for tensor in tensors if not tensor.constant]
