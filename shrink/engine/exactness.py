"""What of a model cannot be equal however a batch is split, and what to do about it."""

from __future__ import annotations

from typing import Any

import tf_keras as keras

from shrink.engine.batch_norm import is_batch_norm, layers_of

_BATCH_NORM = "statistics are per micro-batch and replica; training.batch_norm: frozen keeps them"
_RANDOM = "its random numbers depend on how the batch is split; equal in distribution only"
_RANGES = "its quantization ranges move with every forward pass"
_SPECTRAL = "its estimate of the norm moves with every forward pass"


def inexact_because(model: Any, *, split: bool, frozen_batch_norm: bool) -> tuple[str, ...]:
    """Return a reason for each layer whose result depends on how the global batch is split.

    Args:
        model: the trained model; nested models are looked into.
        split: whether batches are split, over replicas or into micro-batches.
        frozen_batch_norm: whether batch normalisation runs on its stored statistics.
    """
    if not split:
        return ()
    reasons = {layer.name: _reason(layer, frozen_batch_norm) for layer in layers_of(model)}
    return tuple(sorted(f"{name}: {why}" for name, why in reasons.items() if why))


def _reason(layer: Any, frozen_batch_norm: bool) -> str | None:
    if is_batch_norm(layer):
        return _BATCH_NORM if layer.trainable and not frozen_batch_norm else None
    if isinstance(layer, keras.__internal__.layers.BaseRandomLayer):
        return _RANDOM if getattr(layer, "rate", 1) else None
    names = {base.__name__ for base in type(layer).__mro__}
    if names & {"QuantizeWrapper", "QuantizeWrapperV2", "QuantizeLayer"}:
        return _RANGES
    return _SPECTRAL if "SpectralNormalization" in names else None


def synchronising_layers(model: Any) -> tuple[str, ...]:
    """Return the names of layers that exchange values between replicas in their forward pass."""
    return tuple(
        layer.name
        for layer in layers_of(model)
        if getattr(layer, "synchronized", False) or type(layer).__name__ == "PruneLowMagnitude"
    )
