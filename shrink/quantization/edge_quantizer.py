"""Which operators a scheme quantizes, and ai-edge-quantizer, which quantizes them.

After ai-edge-quantizer 0.10's own table, cut down to what LiteRT 2.3 was seen to run.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping
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
from shrink.tflite.model import (
    Subgraph,
    Tensor,
    add_buffer,
    add_tensor_like,
    drop_unread_tensors,
    operator_code,
    packed,
    read,
    unpacked,
    values,
)

Mode = Literal["dynamic", "static", "weight_only"]

MATRIX_OPERATORS = frozenset({"CONV_2D", "FULLY_CONNECTED"})
"""Operators that can have 4-bit weights; the others keep 8 bits."""
_WEIGHTED = MATRIX_OPERATORS | {"DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"}
_INPUT, _WEIGHTS, _BIAS = 0, 1, 2
_POSITIONS = 64
_OPERATOR = schema.BuiltinOperator


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
    operators = []
    for index, operator in enumerate(graph.operators):
        if operator.name in _WEIGHTED and len(operator.inputs) > _WEIGHTS:
            tensor = graph.tensors[operator.inputs[_WEIGHTS]]
            if tensor.constant and tensor.dtype == "FLOAT32":
                operators.append(_weighted(graph, index, tensor))
    return operators


def _weighted(graph: Subgraph, index: int, tensor: Tensor) -> Weighted:
    operator = graph.operators[index]
    geometry: dict[str, Any] = {}
    if operator.name == "CONV_2D":
        options = operator.options
        geometry = {
            "strides": (options.strideH, options.strideW),
            "dilation": (options.dilationHFactor, options.dilationWFactor),
            "padding": "SAME" if options.padding == schema.Padding.SAME else "VALID",
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
    floats: Collection[str] = (),
    integer_outputs: bool = False,
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
        floats: names of the output tensors of operators that stay float, for `static`.
        integer_outputs: whether outputs of the model that are among `floats` become integers.

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
    for name in floats:
        scope = f"^{re.escape(name)};?$"
        recipe.add_quantization_config(scope, _ALL, algorithm_key=AlgorithmName.NO_QUANTIZE)
        if integer_outputs:
            _add(recipe, scope, qtyping.TFLOperationName.OUTPUT, mode, 8, activation_bits)
    for border, keep_float in zip(("INPUT", "OUTPUT"), float_borders, strict=True):
        if keep_float:
            operation = qtyping.TFLOperationName(border)
            recipe.add_quantization_config(".*", operation, algorithm_key=AlgorithmName.NO_QUANTIZE)
    made = _run(content, recipe, ranges)
    return with_int8_prelus(made) if mode == "static" and activation_bits == 8 else made


def with_int8_prelus(content: bytes) -> bytes:
    """Return a quantized model whose PRELU operators work on int8.

    ai-edge-quantizer has none of its own and leaves them between a DEQUANTIZE and a QUANTIZE, whose
    scales they take. Slopes get one scale for all channels, as from the TFLite converter.

    Args:
        content: the .tflite file; returned as it is where no PRELU stands so.
    """
    model = unpacked(content)
    if _OPERATOR.PRELU not in {code.builtinCode for code in model.operatorCodes}:
        return content
    for graph in model.subgraphs:
        codes = [model.operatorCodes[one.opcodeIndex].builtinCode for one in graph.operators]
        by_code = {
            code: [o for c, o in zip(codes, graph.operators, strict=True) if c == code]
            for code in (_OPERATOR.PRELU, _OPERATOR.QUANTIZE, _OPERATOR.DEQUANTIZE)
        }
        sources = {o.outputs[0]: o.inputs[0] for o in by_code[_OPERATOR.DEQUANTIZE]}
        targets = {o.inputs[0]: o for o in by_code[_OPERATOR.QUANTIZE]}
        for operator in by_code[_OPERATOR.PRELU]:
            source, target = sources.get(operator.inputs[0]), targets.get(operator.outputs[0])
            slopes = graph.tensors[operator.inputs[1]]
            data = model.buffers[slopes.buffer].data
            types = {graph.tensors[i].type for i in (source, target and target.outputs[0]) if i}
            if types != {schema.TensorType.INT8} or data is None or target is None:
                continue
            index = add_tensor_like(graph, operator.inputs[1], ";int8")
            _quantize_slopes(model, graph.tensors[index], np.frombuffer(data.tobytes(), "<f4"))
            written = operator.outputs[0]
            operator.inputs, operator.outputs = [source, index], target.outputs
            if written in graph.outputs or sum(written in o.inputs for o in graph.operators) > 1:
                target.opcodeIndex = operator_code(model, _OPERATOR.DEQUANTIZE, 2)
                target.inputs, target.outputs = target.outputs, [written]
                target.builtinOptions, target.builtinOptionsType = None, 0
            else:
                graph.operators.remove(target)
        used = {index for operator in graph.operators for index in operator.inputs}
        idle = [o for o in by_code[_OPERATOR.DEQUANTIZE] if o.outputs[0] not in used]
        graph.operators = [
            one for one in graph.operators if one not in idle or one.outputs[0] in graph.outputs
        ]
    drop_unread_tensors(model)
    return packed(model)


def _quantize_slopes(model: schema.ModelT, tensor: schema.TensorT, slopes: np.ndarray) -> None:
    low, high = min(float(slopes.min()), 0.0), max(float(slopes.max()), 0.0)
    scale = max((high - low) / 255, 1e-9)
    zero_point = round(-128 - low / scale)
    codes = np.clip(np.rint(slopes / scale) + zero_point, -128, 127).astype(np.int8)
    tensor.type, tensor.buffer = schema.TensorType.INT8, add_buffer(model, codes)
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.scale = np.array([scale], np.float32)
    tensor.quantization.zeroPoint = np.array([zero_point], np.int64)


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
