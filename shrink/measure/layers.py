"""A table of a Keras model's layers: parameters, MACs, activations and zeros of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from shrink.contract.details import LayerRow
from shrink.graph.macs import MacsCounter
from shrink.measure.size import Owners
from shrink.tflite.lazy import keras, tf
from shrink.tflite.model import read


def layer_table(model: keras.Model, content: bytes) -> list[LayerRow]:
    """Return a row per layer of a Keras model, nested models taken apart.

    Args:
        model: the model.
        content: its float32 .tflite form, whose operators tell the multiply-accumulates.

    Returns:
        `name` (nested: outer/inner), `type`, `parameters`, `macs` of one example (None where no
        operator is known to be the layer's and it has kernels), `activation_bytes` of one example's
        output, None where a dimension is unknown, and `sparsity`, the share of zeros in its
        kernels, None without kernels.
    """
    layers = dict(_leaves(model, ""))
    macs = _macs_by_layer(content, layers)
    return [
        LayerRow(
            name=path,
            type=type(layer).__name__,
            parameters=int(layer.count_params()),
            macs=macs.get(path, None if _kernels(layer) else 0),
            activation_bytes=_output_bytes(layer),
            sparsity=_sparsity(layer),
        )
        for path, layer in layers.items()
    ]


def layer_paths(model: keras.Model) -> list[str]:
    """Return the paths of a model's layers, those of models in it as outer/inner/name."""
    return list(dict(_leaves(model, "")))


def _macs_by_layer(content: bytes, layers: Collection[str]) -> dict[str, int | None]:
    graphs = read(content)
    counter, owners = MacsCounter(graphs), Owners(layers)
    macs: dict[str, int | None] = {}
    for operator in graphs[0].operators:
        path = owners.of(graphs, operator)
        if path is not None:
            known, more = macs.get(path, 0), counter.operator(operator)
            macs[path] = None if known is None or more is None else known + more
    return macs


def _leaves(model: keras.Model, prefix: str) -> Iterator[tuple[str, keras.layers.Layer]]:
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _leaves(layer, f"{prefix}{layer.name}/")
        else:
            yield f"{prefix}{layer.name}", layer


def _output_bytes(layer: keras.layers.Layer) -> int | None:
    nodes = getattr(layer, "inbound_nodes", ())
    shapes = tf.nest.flatten(nodes[0].outputs) if nodes else []
    if not shapes or any(dimension is None for tensor in shapes for dimension in tensor.shape[1:]):
        return None
    return sum(int(np.prod(t.shape[1:], dtype=np.int64)) * t.dtype.size for t in shapes)


def _kernels(layer: keras.layers.Layer) -> list[tf.Variable]:
    return [weight for weight in layer.weights if len(weight.shape) > 1]


def _sparsity(layer: keras.layers.Layer) -> float | None:
    kernels = [weight.numpy() for weight in _kernels(layer)]
    size = sum(kernel.size for kernel in kernels)
    return sum(int(np.sum(kernel == 0)) for kernel in kernels) / size if size else None
