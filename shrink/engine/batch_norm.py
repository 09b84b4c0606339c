"""Batch normalisation that keeps its stored statistics while a model is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tf_keras as keras


def layers_of(model: Any) -> list[Any]:
    """Return every layer of a model, those of nested models and wrappers too."""
    return [module for module in model.submodules if isinstance(module, keras.layers.Layer)]


def is_batch_norm(layer: Any) -> bool:
    """Whether a layer is a batch normalisation, of any of tf-keras' kinds."""
    return any(base.__name__ == "BatchNormalizationBase" for base in type(layer).__mro__)


@contextmanager
def frozen_statistics(model: Any) -> Iterator[None]:
    """Let batch normalisation use its stored statistics, unchanged, while traced in here.

    Gamma and beta are trained on, unlike with `trainable = False`.
    """
    layers = [layer for layer in layers_of(model) if is_batch_norm(layer)]
    for layer in layers:
        layer.call = _inference(layer.call)
    try:
        yield
    finally:
        for layer in layers:
            del layer.call


def _inference(call: Any) -> Any:
    def inference(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        return call(inputs, training=False)

    return inference
