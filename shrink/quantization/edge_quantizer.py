"""ai-edge-quantizer: from a float .tflite model to integers, operator by operator."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from ai_edge_quantizer import qtyping, quantizer, recipe_manager
from ai_edge_quantizer.algorithm_manager import AlgorithmName

from shrink.base.errors import StageError
from shrink.quantization.operators import Mode
from shrink.quantization.ranges import Ranges
from shrink.tflite.flatbuffer import read

_ALL = qtyping.TFLOperationName.ALL_SUPPORTED


def quantize(
    content: bytes,
    mode: Mode,
    bits: Mapping[str, int] | None = None,
    *,
    ranges: Ranges | None = None,
    activation_bits: Literal[8, 16] = 8,
    float_borders: tuple[bool, bool] = (False, False),
    dense_per_tensor: bool = False,
) -> bytes:
    """Quantize a float model with scales from each channel's largest weight.

    Args:
        content: a float .tflite model.
        mode: what happens to activations.
        bits: width of the weights by the name of an operator's output tensor, where it is not 8.
        ranges: least and largest value of each activation by its tensor's name, for `static`.
        activation_bits: for `static`.
        float_borders: whether inputs and outputs stay float32, for `static`.
        dense_per_tensor: whether each dense layer's weights share one scale, for `static`.

    Raises:
        StageError: ai-edge-quantizer refuses the model.
    """
    recipe = recipe_manager.RecipeManager()
    _add(recipe, ".*", _ALL, mode, 8, activation_bits)
    if dense_per_tensor:
        recipe.add_static_config(
            ".*",
            qtyping.TFLOperationName.FULLY_CONNECTED,
            activation_bits,
            8,
            weight_granularity=qtyping.QuantGranularity.TENSORWISE,
        )
    for name, width in (bits or {}).items():
        if width != 8:
            scope = f"^{re.escape(name)};?$"
            for kind in ("CONV_2D", "FULLY_CONNECTED"):
                operation = qtyping.TFLOperationName(kind)
                _add(recipe, scope, operation, mode, width, activation_bits)
    for border, keep_float in zip(("INPUT", "OUTPUT"), float_borders, strict=True):
        if keep_float:
            operation = qtyping.TFLOperationName(border)
            recipe.add_quantization_config(".*", operation, algorithm_key=AlgorithmName.NO_QUANTIZE)
    return _run(content, recipe, ranges)


def to_float16(content: bytes) -> bytes:
    """Return a float model with its weights stored as float16."""
    recipe = recipe_manager.RecipeManager()
    recipe.add_weight_only_config(".*", _ALL, 16, algorithm_key=AlgorithmName.FLOAT_CASTING)
    return _run(content, recipe, None)


def _add(
    recipe: Any, scope: str, operation: Any, mode: Mode, width: int, activation_bits: int
) -> None:
    if mode == "static":
        recipe.add_static_config(scope, operation, activation_bits, width)
    elif mode == "dynamic":
        recipe.add_dynamic_config(scope, operation, width)
    else:
        recipe.add_weight_only_config(scope, operation, width)


def _run(content: bytes, recipe: Any, ranges: Ranges | None) -> bytes:
    statistics = None
    if ranges is not None:
        dimensions = {t.name: len(t.shape) for t in read(content)[0].tensors}
        statistics = {
            name: {
                "min": np.full((1,) * dimensions[name], low, np.float32),
                "max": np.full((1,) * dimensions[name], high, np.float32),
            }
            for name, (low, high) in ranges.items()
        }
    try:
        with warnings.catch_warnings():
            # Of its own interpreter, which looks up tensor names.
            warnings.filterwarnings("ignore", message=".*experimental_preserve_all_tensors")
            tool = quantizer.Quantizer(content, recipe.get_quantization_recipe())
            result = tool.quantize(
                statistics, enable_progress_report=False, enable_progress_bar=False
            )
    except (ValueError, RuntimeError, KeyError, NotImplementedError) as error:
        brief = " ".join(str(error).split())[:300]
        raise StageError(
            f"ai-edge-quantizer refuses the model: {brief}",
            hint="start from the Keras model, which the TFLite converter quantizes",
        ) from error
    return bytes(result.quantized_model)
