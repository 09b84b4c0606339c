"""Figures of a saved Keras model, and its plain float32 conversion."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
import tensorflow as tf
import tf_keras as keras


def load(path: Path) -> Any:
    """Load a .keras file without its optimizer."""
    return keras.models.load_model(path, compile=False)


def count_parameters(model: Any) -> tuple[int, int]:
    """Return how many parameters there are, and how many are not zero; shared ones once."""
    weights = [np.asarray(w) for w in model.get_weights()]
    return sum(w.size for w in weights), sum(int(np.count_nonzero(w)) for w in weights)


def predict(model: Any, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs, (n, ...) each."""
    keys = [tensor.name.split(":")[0] for tensor in model.inputs]
    order = [inputs[k] for k in keys] if all(k in inputs for k in keys) else list(inputs.values())
    kinds = [np.dtype(tensor.dtype.as_numpy_dtype) for tensor in model.inputs]
    arrays = [
        tf.constant(a.reshape((len(a), *(s or -1 for s in t.shape[1:]))).astype(kind))
        for a, kind, t in zip(order, kinds, model.inputs, strict=True)
    ]
    found = model(arrays if len(arrays) > 1 else arrays[0], training=False)
    flat = found.values() if isinstance(found, dict) else found
    outputs = list(flat) if isinstance(flat, list | tuple) or isinstance(found, dict) else [found]
    return [np.asarray(o, np.float64) for o in outputs]


def convert(model: Any, folder: Path) -> Path:
    """Convert to float32 TFLite for a batch of one, as TensorFlow's guide does it.

    A saved model with one concrete function: recurrent layers become loops or fused operators.
    """
    specs = {
        tensor.name.split(":")[0]: tf.TensorSpec([1, *tensor.shape[1:]], tensor.dtype)
        for tensor in model.inputs
    }

    def call(**arrays: Any) -> Any:
        found = model(
            [arrays[name] for name in specs] if len(specs) > 1 else arrays[next(iter(specs))]
        )
        outputs = list(found.values()) if isinstance(found, dict) else found
        outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
        return {f"output_{i}": tf.identity(o) for i, o in enumerate(outputs)}

    function = tf.function(call).get_concrete_function(
        **{name: tf.TensorSpec(s.shape, s.dtype, name=name) for name, s in specs.items()}
    )
    holder = tf.Module()  # of the variables alone: Keras would trace every layer for a saved model
    holder.held = model.variables
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], holder)
    path = folder / "float32.tflite"
    path.write_bytes(converter.convert())
    return path


def leaf_layers(model: Any, prefix: str = "") -> dict[str, Any]:
    """Return layers without inner layers by their path, `nested/dense`."""
    found: dict[str, Any] = {}
    for layer in model.layers:
        name = f"{prefix}{layer.name}"
        if isinstance(layer, keras.Model):
            found |= leaf_layers(layer, f"{name}/")
        else:
            found[name] = layer
    return found


def sparsity(layer: Any) -> float | None:
    """Return the fraction of zeros in a layer's kernels, of rank 2 or more; None without any."""
    kernels = [np.asarray(w) for w in layer.get_weights() if np.ndim(w) >= 2]
    if not kernels:
        return None
    return sum(int(np.sum(k == 0)) for k in kernels) / sum(k.size for k in kernels)
