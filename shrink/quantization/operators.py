"""Which operators a scheme quantizes.

After ai-edge-quantizer 0.10's own table, cut down to what LiteRT 2.3 was seen to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

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


INT8_OPERATORS: dict[Mode, frozenset[str]] = {
    "dynamic": frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}),
    "static": frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}),
    "weight_only": frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"}),
}
"""Operators that can have 8-bit weights; the weights of others stay float."""


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
    found = []
    for index, operator in enumerate(graph.operators):
        if operator.name in _WEIGHTED and len(operator.inputs) > _WEIGHTS:
            tensor = graph.tensors[operator.inputs[_WEIGHTS]]
            if tensor.constant and tensor.dtype == "FLOAT32":
                found.append(_weighted(graph, index, tensor, stored.Operators(index)))
    return found


def _weighted(graph: Subgraph, index: int, tensor: Tensor, stored: Any) -> Weighted:
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
    found = values(tensor)
    return np.zeros(0, np.float32) if found is None else found.reshape(tensor.shape)
