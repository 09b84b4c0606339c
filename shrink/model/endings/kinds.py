"""What an output's bounds say of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from shrink.model.endings.computation import Range

EndingKind = Literal["softmax", "sigmoid", "logits"]
"""Probabilities that add up to 1, probabilities each for itself, or neither: any numbers."""

_ROUNDING = 1e-3
"""How far constants that are stored as integers move a bound."""


def kind_of(found: Range) -> EndingKind | None:
    """Return what an output is; None where its bounds do not tell."""
    if found.low >= -_ROUNDING and found.high <= 1 + _ROUNDING:
        adds_up = found.axis == -1 and abs((found.total or 0.0) - 1) <= _ROUNDING
        return "softmax" if adds_up else "sigmoid"
    return "logits" if found.unbounded and found.reached else None


def kind_of_values(values: np.ndarray[Any, Any], scale: float = 0.0) -> EndingKind | None:
    """Return what an output is, told from its values; None where they do not tell.

    That all of them lie between 0 and 1 proves nothing; that they add up to 1 besides does.

    Args:
        values: of some examples, (n, ..., classes).
        scale: of the quantization of a stored integer output; 0 for a float output.
    """
    if beyond_probabilities(values, scale):
        return "logits"
    sums, classes = values.sum(axis=-1), values.shape[-1]
    # Each rounded value is off by half a step at most.
    slack = _ROUNDING + classes * scale / 2
    if classes > 1 and slack < 0.5 and values.size and np.allclose(sums, 1.0, rtol=0, atol=slack):
        return "softmax"
    return None


def beyond_probabilities(values: np.ndarray[Any, Any], scale: float = 0.0) -> bool:
    """Whether values cannot be probabilities, whatever rounding did to them."""
    slack = _ROUNDING + scale
    return bool(np.any(values < -slack) or np.any(values > 1 + slack))


def described(kind: EndingKind | None, shape: Sequence[int | None]) -> str:
    """Return what an output is, in words."""
    if kind is None:
        return "unknown"
    if kind == "softmax":
        return "probabilities that add up to 1"
    single = tuple(shape[-1:]) == (1,)
    return {"sigmoid": "a probability" if single else "probabilities", "logits": "logits"}[kind]
