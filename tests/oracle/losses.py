"""Losses with arguments, written from their definitions, element by element in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

EPSILON = 1e-7
"""Keras clips probabilities to this and to 1 minus this."""

Settings = Mapping[str, Any]


def _probabilities(values: np.ndarray, from_logits: bool) -> np.ndarray:
    if from_logits:
        powers = np.exp(values - values.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)
    return values / values.sum(-1, keepdims=True)


def _one_hot(target: np.ndarray, values: np.ndarray) -> np.ndarray:
    if target.shape == values.shape and values.shape[-1] > 1:
        return target.astype(float)
    classes = np.arange(values.shape[-1])
    return (target.reshape(*values.shape[:-1], 1) == classes).astype(float)


def _categorical_focal(
    values: np.ndarray, target: np.ndarray, from_logits: bool, settings: Settings
) -> np.ndarray:
    p = np.clip(_probabilities(values, from_logits), EPSILON, 1 - EPSILON)
    smoothing = settings.get("label_smoothing", 0.0)
    wanted = _one_hot(target, values) * (1 - smoothing) + smoothing / values.shape[-1]
    each = -settings.get("alpha", 0.25) * (1 - p) ** settings.get("gamma", 2.0) * np.log(p)
    return (wanted * each).sum(-1)


def _binary_focal(
    values: np.ndarray, target: np.ndarray, from_logits: bool, settings: Settings
) -> np.ndarray:
    smoothing = settings.get("label_smoothing", 0.0)
    wanted = target.reshape(values.shape) * (1 - smoothing) + smoothing / 2
    p = 1 / (1 + np.exp(-values)) if from_logits else np.clip(values, EPSILON, 1 - EPSILON)
    more = 0.0 if from_logits else EPSILON  # Keras adds it once more within the logarithm
    entropy = -wanted * np.log(p + more) - (1 - wanted) * np.log(1 - p + more)
    right = wanted * p + (1 - wanted) * (1 - p)
    return ((1 - right) ** settings.get("gamma", 2.0) * entropy).mean(-1)


def _smoothed(
    values: np.ndarray, target: np.ndarray, from_logits: bool, settings: Settings
) -> np.ndarray:
    p = np.clip(_probabilities(values, from_logits), EPSILON, 1 - EPSILON)
    smoothing = settings.get("label_smoothing", 0.0)
    wanted = _one_hot(target, values) * (1 - smoothing) + smoothing / values.shape[-1]
    return -(wanted * np.log(p)).sum(-1)


def _divergence(
    values: np.ndarray, target: np.ndarray, from_logits: bool, settings: Settings
) -> np.ndarray:
    p = _probabilities(values, True) if from_logits else values
    p, q = (np.clip(x, EPSILON, 1) for x in (p, _one_hot(target, values)))
    return (q * np.log(q / p)).sum(-1)


def _hinge(power: int) -> Callable[..., np.ndarray]:
    def rule(
        values: np.ndarray, target: np.ndarray, from_logits: bool, settings: Settings
    ) -> np.ndarray:
        signs = np.where(target.reshape(values.shape) > 0, 1.0, -1.0)
        return (np.clip(1 - signs * values, 0, None) ** power).mean(-1)

    return rule


def _crammer_singer(
    values: np.ndarray, target: np.ndarray, from_logits: bool, settings: Settings
) -> np.ndarray:
    wanted = _one_hot(target, values)
    best = (values * (1 - wanted)).max(-1)
    return np.clip(1 + best - (values * wanted).sum(-1), 0, None)


def _of_errors(rule: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def of(
        values: np.ndarray, target: np.ndarray, from_logits: bool, settings: Settings
    ) -> np.ndarray:
        return rule(values, target.reshape(values.shape).astype(float), **settings).mean(-1)

    return of


def _huber(values: np.ndarray, wanted: np.ndarray, delta: float = 1.0) -> np.ndarray:
    inside = np.clip(np.abs(values - wanted), 0, delta)
    return inside * (np.abs(values - wanted) - inside / 2)


def _log_cosh(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return np.log(np.cosh(values - wanted))


def _cosine(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(values, axis=-1) * np.linalg.norm(wanted, axis=-1)
    return (-(values * wanted).sum(-1) / np.maximum(norms, 1e-12))[..., None]


def _poisson(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return values - wanted * np.log(values + EPSILON)


def _percentage(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return 100 * np.abs(values - wanted) / np.clip(np.abs(wanted), EPSILON, None)


def _logarithmic(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    one, other = (np.log(1 + np.clip(x, EPSILON, None)) for x in (values, wanted))
    return (one - other) ** 2


def dice(
    values: np.ndarray, target: np.ndarray, from_logits: bool, of: str, smooth: float = 1.0
) -> np.ndarray:
    """Return one minus the smoothed overlap of each example, averaged over the last axis, (n,)."""
    if of == "classes":
        wanted = _one_hot(target, values)
        p = _probabilities(values, True) if from_logits else values
    else:
        wanted = target.reshape(values.shape)
        p = 1 / (1 + np.exp(-values)) if from_logits else values
    n, k = len(values), values.shape[-1]
    p, wanted = p.reshape(n, -1, k), wanted.reshape(n, -1, k)
    shared = np.einsum("npk,npk->nk", p, wanted)
    overlap = (2 * shared + smooth) / (p.sum(1) + wanted.sum(1) + smooth)
    return 1 - overlap.mean(-1)


LOSSES: dict[str, Callable[..., np.ndarray]] = {
    "categorical_focal_crossentropy": _categorical_focal,
    "binary_focal_crossentropy": _binary_focal,
    "categorical_crossentropy": _smoothed,
    "kl_divergence": _divergence,
    "hinge": _hinge(1),
    "squared_hinge": _hinge(2),
    "categorical_hinge": _crammer_singer,
    "huber": _of_errors(_huber),
    "log_cosh": _of_errors(_log_cosh),
    "cosine_similarity": _of_errors(_cosine),
    "poisson": _of_errors(_poisson),
    "mean_absolute_percentage_error": _of_errors(_percentage),
    "mean_squared_logarithmic_error": _of_errors(_logarithmic),
}
"""(outputs, targets, from_logits, arguments) to the loss of each element but the last axis."""
