"""What of a model cannot be equal however a batch is split, and what to do about it."""

from __future__ import annotations

from typing import Any

import tf_keras as keras

from shrink.engine.batch_norm import is_batch_norm, layers_of
from shrink.engine.config import BatchNormMode

_BATCH_NORM = "statistics are per micro-batch and replica; training.batch_norm: frozen keeps them"
_SYNCHRONIZED = (
    "statistics are per micro-batch of all replicas; a training.micro_batch_size of a replica's"
    " whole share makes them those of the batch"
)
_RANDOM = "its random numbers depend on how the batch is split; equal in distribution only"
_RANGES = "its quantization ranges move with every forward pass"
_SPECTRAL = "its estimate of the norm moves with every forward pass"
_ADDED = (
    "whether a loss of its own (add_loss) is a sum or a mean over the batch cannot be told; it is"
    " taken for a mean, which is exact"
)
_STATE = "its state passes from one forward pass to the next"
_COUNTED = "its pruning schedule counts forward passes"

_AMOUNTS = ("rate", "stddev", "dropout", "recurrent_dropout")
_QUANTIZED = {"QuantizeWrapper", "QuantizeWrapperV2", "QuantizeLayer"}
_PRUNED = {"PruneLowMagnitude"}


def inexact_because(
    model: Any, *, replicas: int, accumulation_steps: int, batch_norm: BatchNormMode
) -> tuple[str, ...]:
    """Return a reason for each layer whose result depends on how the global batch is split.

    Args:
        model: the trained model; nested models are looked into.
        replicas: copies of the model that share a batch.
        accumulation_steps: micro-batches of each replica.
        batch_norm: which statistics batch normalisation uses.
    """
    if replicas * accumulation_steps == 1:
        return ()
    looped = accumulation_steps > 1
    reasons = {layer.name: _reason(layer, batch_norm, looped) for layer in layers_of(model)}
    return tuple(sorted(f"{name}: {why}" for name, why in reasons.items() if why))


def _reason(layer: Any, batch_norm: BatchNormMode, looped: bool) -> str | None:
    if is_batch_norm(layer):
        return _batch_norm_reason(layer, batch_norm, looped)
    if isinstance(layer, keras.__internal__.layers.BaseRandomLayer) and _draws(layer):
        return _RANDOM
    if _adds_loss(layer):
        return _ADDED
    if isinstance(layer, keras.layers.RNN) and layer.stateful:
        return _STATE
    names = _class_names(layer)
    if names & _QUANTIZED:
        return _RANGES
    if names & _PRUNED:
        return _COUNTED
    return _SPECTRAL if "SpectralNormalization" in names else None


def _draws(layer: Any) -> bool:
    """Whether a layer of tf-keras' random ones draws at all: many may be told of a rate of 0."""
    named = (getattr(layer, name, None) for name in _AMOUNTS)
    amounts = [amount for amount in named if isinstance(amount, int | float)]
    return not amounts or any(amounts)


def _adds_loss(layer: Any) -> bool:
    """Whether a layer added a loss when it was last called that is no regulariser's.

    Those of weights do not depend on the batch; Keras divides those of activities by its size.
    """
    added = bool(layer._losses or layer._eager_losses)
    return "AddLoss" in _class_names(layer) or (added and layer.activity_regularizer is None)


def _batch_norm_reason(layer: Any, batch_norm: BatchNormMode, looped: bool) -> str | None:
    if not layer.trainable or batch_norm == "frozen":
        return None
    if batch_norm == "synchronized" or layer.synchronized:
        return _SYNCHRONIZED if looped else None
    return _BATCH_NORM


def synchronising_layers(model: Any) -> tuple[str, ...]:
    """Return the names of layers that exchange values between replicas in their forward pass."""
    return tuple(
        layer.name
        for layer in layers_of(model)
        if getattr(layer, "synchronized", False) or _class_names(layer) & (_QUANTIZED | _PRUNED)
    )


def _class_names(layer: Any) -> set[str]:
    return {base.__name__ for base in type(layer).__mro__}
