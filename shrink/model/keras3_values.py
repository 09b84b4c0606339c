"""Plain values out of Keras 3's serialized ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def plain_value(value: Any, tensor: Callable[[str, int, int], Any] | None = None) -> Any:
    """Return lists, tuples, slices and arrays in place of their serialized forms.

    Args:
        value: parsed JSON.
        tensor: gives the tensor of a layer's name, node and index.
    """
    if isinstance(value, list):
        return [plain_value(item, tensor) for item in value]
    if not isinstance(value, Mapping):
        return value
    kind, config = value.get("class_name"), value.get("config")
    if kind == "__keras_tensor__" and tensor is not None:
        return tensor(*value["config"]["keras_history"])
    if kind == "__tuple__":
        return tuple(plain_value(item, tensor) for item in value.get("items", config))
    if kind == "__slice__":
        parts = [plain_value(value["config"][key], tensor) for key in ("start", "stop", "step")]
        return slice(*parts)
    if kind == "__ellipsis__":
        return Ellipsis
    if kind in ("__numpy__", "__tensor__"):
        return np.asarray(value["config"]["value"], value["config"]["dtype"])
    return {key: plain_value(item, tensor) for key, item in value.items()}
