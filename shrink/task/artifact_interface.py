"""What an application must know to feed an artifact and to read its answer."""

from __future__ import annotations

from typing import Any

from shrink.data.config import DataConfig
from shrink.data.dataset import Dataset
from shrink.tflite.interpreter import load
from shrink.tflite.session import TensorDetail


def describe_interface(content: bytes, dataset: Dataset, data: DataConfig) -> dict[str, Any]:
    """Return `inputs` and `outputs`, `labels` by index, and `normalize`, as plain data.

    Args:
        content: the .tflite file.
        dataset: what it was measured on; its class names are the labels.
        data: its `normalize` is done to examples before the model sees them.
    """
    return {
        **describe_tensors(content),
        "labels": list(dataset.class_names) or None,
        "normalize": data.normalize.model_dump() if data.normalize is not None else None,
    }


def describe_tensors(content: bytes) -> dict[str, Any]:
    """Return `inputs` and `outputs` of a .tflite file: names, shapes, dtypes, scales."""
    runner = load(content)
    return {
        "inputs": [_tensor(detail) for detail in runner.input_details],
        "outputs": [_tensor(detail) for detail in runner.output_details],
    }


def _tensor(detail: TensorDetail) -> dict[str, Any]:
    is_quantized = detail.scale != 0
    return {
        "name": detail.name,
        "shape": list(detail.shape),
        "dtype": detail.dtype.name,
        "scale": detail.scale if is_quantized else None,
        "zero_point": detail.zero_point if is_quantized else None,
    }
