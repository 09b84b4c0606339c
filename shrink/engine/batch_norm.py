"""Batch normalisation while a model is trained: which statistics it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

import tf_keras as keras

from shrink.base.keras_internals import layers_of
from shrink.base.types import Tensors
from shrink.engine.config import BatchNormMode
from shrink.graph.network import is_batch_norm

Method: TypeAlias = "Callable[..., Tensors]"


def batch_norm_mode(model: keras.Model, mode: BatchNormMode) -> AbstractContextManager[None]:
    """Let a model's batch normalisation work as the recipe says while it is traced in here."""
    if mode == "frozen":
        return frozen_statistics(model)
    if mode == "synchronized":
        return synchronized_statistics(model)
    return nullcontext()


@contextmanager
def wrapped_batch_norms(
    model: keras.Model, method: str, wrap: Callable[[Method], Method]
) -> Iterator[None]:
    """Let a method of each batch normalisation be what `wrap` makes of it while in here."""
    layers = [layer for layer in layers_of(model) if is_batch_norm(layer)]
    for layer in layers:
        setattr(layer, method, wrap(getattr(layer, method)))
    try:
        yield
    finally:
        for layer in layers:
            delattr(layer, method)


def frozen_statistics(model: keras.Model) -> AbstractContextManager[None]:
    """Let batch normalisation use its stored statistics, unchanged, while traced in here.

    Gamma and beta are trained on, unlike with `trainable = False`.
    """

    def inference(call: Method) -> Method:
        return lambda inputs, training=None, mask=None: call(inputs, training=False)

    return wrapped_batch_norms(model, "call", inference)


@contextmanager
def synchronized_statistics(model: keras.Model) -> Iterator[None]:
    """Let batch normalisation use the statistics of all replicas while traced in here.

    The mean and the (biased) variance are those of the examples that all replicas look at at the
    same time (Ioffe & Szegedy 2015, over the micro-batches of a step's replicas together), so
    that replicas are exact and micro-batches are not. Layers with batch renormalisation stay as
    they are.
    """
    layers = [
        layer
        for layer in layers_of(model)
        if is_batch_norm(layer) and not layer.renorm and layer.virtual_batch_size is None
    ]
    before = [(layer.synchronized, layer.fused) for layer in layers]
    for layer in layers:
        layer.synchronized, layer.fused = True, False
    try:
        yield
    finally:
        for layer, (synchronized, fused) in zip(layers, before, strict=True):
            layer.synchronized, layer.fused = synchronized, fused
