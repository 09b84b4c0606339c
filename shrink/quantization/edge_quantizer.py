"""Which operators a scheme quantizes, and ai-edge-quantizer, which quantizes them.

After ai-edge-quantizer 0.10's own table, cut down to what LiteRT 2.3 was seen to run.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_quantizer import qtyping, quantizer, recipe_manager
from ai_edge_quantizer.algorithm_manager import AlgorithmName

from shrink.base.errors import StageError
from shrink.quantization.calibration import Ranges
from shrink.tflite.edit import without_plan
from shrink.tflite.flatbuffer import values
from shrink.tflite.structure import Subgraph, Tensor, read

Mode = Literal["dynamic", "static", "weight_only"]
Target = Literal["litert", "tflm"]

INT4_OPERATORS: dict[Mode, frozenset[str]] = {
    "dynamic": frozenset({"CONV_2D", "FULLY_CONNECTED"}),
    "static": frozenset({"CONV_2D", "FULLY_CONNECTED"}),
    "weight_only": frozenset({"CONV_2D", "FULLY_CONNECTED"}),
}
"""Operators that can have 4-bit weights; the others keep 8 bits."""

MICRO_INT4_OPERATORS = frozenset({"CONV_2D"})
"""Those of them that TFLite Micro's stock kernels run so, with integer activations."""


def int4_operators(mode: Mode, target: Target) -> frozenset[str]:
    """Return the operators that can have 4-bit weights on a runtime."""
    if target == "tflm":
        return INT4_OPERATORS[mode] & MICRO_INT4_OPERATORS
    return INT4_OPERATORS[mode]


MATRIX_OPERATORS = frozenset({"CONV_2D", "FULLY_CONNECTED"})
_WEIGHTED = MATRIX_OPERATORS | {"DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"}
_INPUT, _WEIGHTS, _BIAS = 0, 1, 2
_POSITIONS = 64


@dataclass(frozen=True)
class Weighted:
    """An operator with constant float32 weights.

    Attributes:
        index: among the operators of the first subgraph.
        kind: CONV_2D and so on.
        name: its output tensor's.
        input: index of the tensor that it reads.
        weights: float32 in the stored shape; CONV_2D (out, height, width, in), dense (out, in).
        bias: float32 (out,), None where it has none.
        strides: rows and columns, (1, 1) for dense.
        dilation: likewise.
        padding: SAME or VALID.
    """

    index: int
    kind: str
    name: str
    input: int
    weights: np.ndarray
    bias: np.ndarray | None
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: str = "VALID"

    @property
    def matrix(self) -> np.ndarray:
        """The weights as float64 (channels, n), one row per output channel."""
        return self.weights.reshape(len(self.weights), -1).astype(np.float64)

    def rows(self, inputs: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Return what the weights are multiplied with: float32 (rows, n).

        Args:
            inputs: (examples, ...) of the operator's input tensor.
            random: picks up to 64 output positions of each example of a convolution.
        """
        if self.kind == "FULLY_CONNECTED":
            return inputs.reshape(-1, self.weights.shape[1])
        _, height, width, _ = self.weights.shape
        patches = tf.image.extract_patches(
            inputs,
            [1, height, width, 1],
            [1, *self.strides, 1],
            [1, *self.dilation, 1],
            self.padding,
        ).numpy()
        flat = patches.reshape(len(inputs), -1, patches.shape[-1])
        if flat.shape[1] > _POSITIONS:
            chosen = random.permutation(flat.shape[1])[:_POSITIONS]
            flat = flat[:, chosen]
        return np.ascontiguousarray(flat.reshape(-1, flat.shape[-1]))


def weighted_operators(content: bytes) -> list[Weighted]:
    """Return the operators of the first subgraph with constant float32 weights, in order."""
    graph = read(content)[0]
    stored = schema.Model.GetRootAs(content, 0).Subgraphs(0)
    operators = []
    for index, operator in enumerate(graph.operators):
        if operator.name in _WEIGHTED and len(operator.inputs) > _WEIGHTS:
            tensor = graph.tensors[operator.inputs[_WEIGHTS]]
            if tensor.constant and tensor.dtype == "FLOAT32":
                operators.append(_weighted(graph, index, tensor, stored.Operators(index)))
    return operators


def _weighted(graph: Subgraph, index: int, tensor: Tensor, stored: schema.Operator) -> Weighted:
    operator = graph.operators[index]
    geometry: dict[str, Any] = {}
    if operator.name == "CONV_2D":
        options = schema.Conv2DOptions()
        table = stored.BuiltinOptions()
        options.Init(table.Bytes, table.Pos)
        geometry = {
            "strides": (options.StrideH(), options.StrideW()),
            "dilation": (options.DilationHFactor(), options.DilationWFactor()),
            "padding": "SAME" if options.Padding() == schema.Padding.SAME else "VALID",
        }
    has_bias = len(operator.inputs) > _BIAS and operator.inputs[_BIAS] >= 0
    bias = graph.tensors[operator.inputs[_BIAS]] if has_bias else None
    return Weighted(
        index=index,
        kind=operator.name,
        name=graph.tensors[operator.outputs[0]].name,
        input=operator.inputs[_INPUT],
        weights=_array(tensor),
        bias=_array(bias) if bias is not None and bias.constant else None,
        **geometry,
    )


def _array(tensor: Tensor) -> np.ndarray:
    array = values(tensor)
    return np.zeros(0, np.float32) if array is None else array.reshape(tensor.shape)


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
    recipe: recipe_manager.RecipeManager,
    scope: str,
    operation: qtyping.TFLOperationName,
    mode: Mode,
    width: int,
    activation_bits: int,
) -> None:
    if mode == "static":
        recipe.add_static_config(scope, operation, activation_bits, width)
    elif mode == "dynamic":
        recipe.add_dynamic_config(scope, operation, width)
    else:
        recipe.add_weight_only_config(scope, operation, width)


def _run(content: bytes, recipe: recipe_manager.RecipeManager, ranges: Ranges | None) -> bytes:
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
            tool = quantizer.Quantizer(without_plan(content), recipe.get_quantization_recipe())
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
