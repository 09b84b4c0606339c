"""Bounds of a .tflite file's outputs, from its operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shrink.model.endings.kinds import Node, Range, Shape
from shrink.model.endings.ranges import range_of
from shrink.tflite.flatbuffer import values
from shrink.tflite.structure import Subgraph, read

_KINDS = {
    **{"RESHAPE": "Reshape", "SQUEEZE": "Squeeze", "EXPAND_DIMS": "ExpandDims"},
    **{"TRANSPOSE": "Transpose", "CONCATENATION": "ConcatV2", "PACK": "Pack", "UNPACK": "Unpack"},
    **{"SPLIT": "Split", "SPLIT_V": "SplitV", "SLICE": "Slice", "STRIDED_SLICE": "StridedSlice"},
    **{"GATHER": "GatherV2", "GATHER_ND": "GatherNd", "REVERSE_V2": "ReverseV2", "TILE": "Tile"},
    **{"BROADCAST_TO": "BroadcastTo", "PAD": "Pad", "MIRROR_PAD": "MirrorPad"},
    **{"AVERAGE_POOL_2D": "AvgPool", "MAX_POOL_2D": "MaxPool", "REDUCE_MAX": "Max"},
    **{"REDUCE_MIN": "Min", "MEAN": "Mean", "SUM": "Sum", "TOPK_V2": "TopKV2"},
    **{"RESIZE_BILINEAR": "ResizeBilinear", "DEPTH_TO_SPACE": "DepthToSpace"},
    **{"RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighbor", "SPACE_TO_DEPTH": "SpaceToDepth"},
    **{"BATCH_TO_SPACE_ND": "BatchToSpaceND", "SPACE_TO_BATCH_ND": "SpaceToBatchND"},
    **{"CAST": "Cast", "QUANTIZE": "Quantize", "DEQUANTIZE": "Dequantize"},
    **{"ADD": "AddV2", "ADD_N": "AddN", "SUB": "Sub", "MUL": "Mul", "DIV": "RealDiv"},
    **{"MAXIMUM": "Maximum", "MINIMUM": "Minimum", "SELECT": "Select", "SELECT_V2": "SelectV2"},
    **{"SOFTMAX": "Softmax", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "LOG_SOFTMAX": "LogSoftmax"},
    **{"RELU": "Relu", "RELU6": "Relu6", "RELU_0_TO_1": "Relu0To1", "RELU_N1_TO_1": "ReluN1To1"},
    **{"ELU": "Elu", "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "RSQRT": "Rsqrt"},
    **{"SQUARE": "Square", "ABS": "Abs", "NEG": "Neg", "SIN": "Sin", "COS": "Cos"},
    **{"L2_NORMALIZATION": "L2Normalization", "SQUARED_DIFFERENCE": "SquaredDifference"},
    **{"GREATER": "Greater", "LESS": "Less", "EQUAL": "Equal", "NOT_EQUAL": "NotEqual"},
    **{"GREATER_EQUAL": "GreaterEqual", "LESS_EQUAL": "LessEqual", "ONE_HOT": "OneHot"},
    **{"FULLY_CONNECTED": "MatMul", "CONV_2D": "Conv2D", "CONV_3D": "Conv3D"},
    **{"DEPTHWISE_CONV_2D": "DepthwiseConv2dNative", "BATCH_MATMUL": "BatchMatMulV2"},
    **{"TRANSPOSE_CONV": "Conv2DBackpropInput", "CONV_3D_TRANSPOSE": "Conv3DBackpropInputV2"},
    **{"EMBEDDING_LOOKUP": "Embedding", "CUMSUM": "Cumsum", "ZEROS_LIKE": "ZerosLike"},
}
"""TensorFlow's name of each operator of TFLite."""

_CLAMPS = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "TANH": (-1.0, 1.0),
}


class FileComputation:
    """The entry subgraph of a .tflite file; tensors are their indices."""

    def __init__(self, graph: Subgraph) -> None:
        self._graph = graph
        self._makers = {index: each for each in graph.operators for index in each.outputs}

    def node(self, tensor: int) -> Node | None:
        """Return the operator that makes a tensor; None for an input of the model."""
        operator = self._makers.get(tensor)
        if operator is None:
            return None
        return Node(
            "?" if operator.custom else _KINDS.get(operator.name, "?"),
            tuple(index for index in operator.inputs if index >= 0),
            self.shape(tensor),
            clamp=_CLAMPS.get(operator.fused_activation),
        )

    def constant(self, tensor: int) -> np.ndarray[Any, Any] | None:
        """Return the real values of a constant, flat; None for any other tensor."""
        own = self._graph.tensors[tensor]
        stored = values(own) if own.constant else None
        if stored is None or len(own.scales) > 1:
            return None
        if own.scales:
            return (stored.astype(np.float64) - own.zero_points[0]) * own.scales[0]
        return stored

    def shape(self, tensor: int) -> Shape | None:
        """Return a tensor's shape; what is open is stored as 1."""
        return self._graph.tensors[tensor].shape


def output_ranges(content: bytes) -> dict[int, Range]:
    """Return the bounds of each output of a .tflite file, by its tensor's index.

    Raises:
        ModelError: the content is no TFLite model.
    """
    graph = read(content)[0]
    computation = FileComputation(graph)
    return {index: range_of(computation, index) for index in graph.outputs}
